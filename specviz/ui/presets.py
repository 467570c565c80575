"""Six prompts that show where drafting is easy and where it is not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A prompt with the word on its button."""

    name: str
    prompt: str


PRESETS = (
    Preset("Chat", "Hello! Tell me a fun fact about the Moon."),
    Preset("List", "List five things to check before a long bicycle ride, each with a short reason."),
    Preset("Code", "Write a Python function that returns the n-th Fibonacci number, then explain it line by line."),
    Preset("Maths", "A train travels 60 km in 45 minutes. How far does it travel in 2 hours at the same speed? Show every step."),
    Preset(
        "Rewrite",
        "Correct the spelling mistakes in this text:\n\n"
        "The cat sat by the windwo and watched the rain. When the rain stoped, the cat went out to the garden. "
        "In the garden the cat found a smal red ball, and it played with the ball until the sun went down.",
    ),
    Preset(
        "JSON",
        "Continue this JSON list with three more planets and return only JSON:\n"
        '[{"name": "Mercury", "moons": 0, "rings": false}, {"name": "Venus", "moons": 0, "rings": false},',
    ),
)
