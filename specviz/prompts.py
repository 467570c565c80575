"""Prompts for benchmarks: read from JSON lines or plain text, and a few built in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.errors import BadFile, BadInput


@dataclass(frozen=True)
class Prompt:
    """One user turn, with its name in the file and, where the file says so, its task."""

    text: str
    name: str
    task: str | None = None


BUILT_IN = (
    Prompt("What should I bring to a dinner with new neighbours?", "built-in/chat", "chat"),
    Prompt("List five things to check before a long bicycle ride.", "built-in/list", "list"),
    Prompt("Write a Python function that returns the n-th Fibonacci number.", "built-in/code", "code"),
    Prompt("A train travels 60 km in 45 minutes. How far does it go in 2 hours?", "built-in/maths", "maths"),
    Prompt("Repeat this text, with 'dog' for 'cat': The cat sat by the window. When the rain stopped, the cat went out.", "built-in/rewrite", "rewrite"),
    Prompt("Return a JSON list of four planets with their number of moons.", "built-in/json", "json"),
)


def read_prompts(path: Path, limit: int | None = None) -> list[Prompt]:
    """Returns the prompts of a file: JSON lines with `prompt` or `turns` (the first turn is taken), or one prompt a line.

    A file whose first line is a JSON object is read as JSON lines. Raises BadInput or BadFile with the line and what was expected.
    """
    try:
        lines = [(number, line) for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if line.strip()]
    except OSError as problem:
        raise BadInput(f"Could not read the prompts in {path}: {problem.strerror or problem}.") from None
    except UnicodeDecodeError:
        raise BadFile(f"{path.name} is not text in UTF-8. Expected JSON lines or one prompt a line.") from None
    if not lines:
        raise BadInput(f"{path.name} holds no prompts. Expected JSON lines with `prompt` or `turns`, or one prompt a line.")
    records = lines[0][1].lstrip().startswith("{")
    return [_from_record(line, number, path.name) if records else Prompt(line.strip(), f"{path.stem}/{number}") for number, line in lines[:limit]]


def _from_record(line: str, number: int, name: str) -> Prompt:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise BadFile(f"{name}, line {number} is not valid JSON: {str(problem)[:120]}.") from None
    turns = record.get("turns") if isinstance(record, Mapping) else None
    text = record.get("prompt") or (turns[0] if isinstance(turns, list) and turns else None) if isinstance(record, Mapping) else None
    if not isinstance(text, str) or not text.strip():
        raise BadFile(f"{name}, line {number} has no prompt. Expected `prompt`, or `turns` with the prompt first.")
    task = record.get("task")
    return Prompt(text, str(record.get("id") or f"line {number}"), task if isinstance(task, str) else None)
