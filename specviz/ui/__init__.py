"""The Gradio app: it reads events and traces, and never looks into the engine."""
