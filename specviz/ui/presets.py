"""Six prompts that show where drafting is easy and where it is not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A prompt with the word on its button."""

    name: str
    prompt: str


PRESETS = (
    Preset("Chat", "My neighbour has invited me to dinner and I don't know what to bring. What would you suggest?"),
    Preset("List", "List five things to check before a long bicycle ride, each with a short reason."),
    Preset("Code", "Write a Python function that returns the n-th Fibonacci number, then explain it line by line."),
    Preset("Maths", "A train travels 60 km in 45 minutes. How far does it travel in 2 hours at the same speed? Show every step."),
    Preset(
        "Rewrite",
        "Repeat the following text, but change every 'cat' to 'dog':\n\n"
        "The cat sat by the window and watched the rain. When the rain stopped, the cat went out to the garden. "
        "In the garden the cat found a small red ball, and the cat played with the ball until the sun went down.",
    ),
    Preset("JSON", 'Return a JSON list of four planets. Each entry has the keys "name", "moons" and "has_rings". Return only the JSON.'),
)
