"""Run and Stop: how a page asks for a run, waits for its turn, ends it early, and gets its buttons back whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import gradio as gr

from specviz.ui import notes
from specviz.ui.app import MODEL_WORK, App
from specviz.ui.controls import QUIET


class RunButtons:
    """Run, Stop and the line of text below them. Stopping sets a flag that the run reads once per round, so that it ends cleanly."""

    def __init__(self, app: App, prefix: str, label: str) -> None:
        self.app, self.prefix = app, prefix
        with gr.Row(elem_classes="app-run"):
            self.run = gr.Button(label, variant="primary", elem_id=f"{prefix}-run")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id=f"{prefix}-stop")
        self.message = gr.HTML("", elem_id=f"{prefix}-message")
        self.parts = [self.run, self.stop, self.message]

    def wire(self, prompt: gr.Textbox, decode: Callable[..., Any], inputs: Collection[Any], screen: Collection[Any]) -> None:
        """Runs `decode` on a click or on Shift+Enter; all pages' runs share one place, so that the model does one thing at a time."""
        armed = gr.on([self.run.click, prompt.submit], self.arm, None, self.parts, **QUIET)
        decoded = armed.then(
            decode, set(inputs), [*self.parts, *screen], show_progress="hidden", concurrency_id=MODEL_WORK, concurrency_limit=1, api_visibility="private"
        )
        decoded.then(self.rest, None, self.parts[:2], **QUIET)  # also when the queue was full or the run failed
        self.stop.click(self.ask_stop, None, self.message, **QUIET)

    def session(self, request: gr.Request) -> str:
        return f"{self.prefix}/{request.session_hash}"

    def stopped(self, request: gr.Request) -> Callable[[], bool]:
        """Returns what a run asks once per round."""
        session = self.session(request)
        return lambda: self.app.stops.asked(session)

    def arm(self, request: gr.Request) -> dict[Any, Any]:
        """A run was asked for; it may have to wait for its turn."""
        self.app.stops.arm(self.session(request))
        return {self.run: gr.update(visible=False), self.stop: gr.update(visible=True), self.message: notes.message("Waiting for a turn.", "busy")}

    def rest(self) -> dict[Any, Any]:
        """No run is going on."""
        return {self.run: gr.update(visible=True), self.stop: gr.update(visible=False)}

    def ask_stop(self, request: gr.Request) -> str:
        """The run, going on or still waiting, should end."""
        self.app.stops.stop(self.session(request))
        return notes.message("Stopping after this round.", "busy")

    def refuse(self, problem: Exception) -> dict[Any, Any]:
        """What was asked for cannot be run: says why, and leaves everything else as it is."""
        return {self.message: notes.message(str(problem), "error"), **self.rest()}
