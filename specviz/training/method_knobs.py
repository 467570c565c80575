"""What may be given as --knob: the keyword-only parameters of a method's lesson, checked before any work is done."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from specviz.checks import is_number, is_whole
from specviz.drafters.head_sizes import MOST_PARTS
from specviz.errors import BadInput


def check_knobs(method: str, knobs: Mapping[str, Any]) -> None:
    """Raises BadInput for a knob that the lesson of `method` does not have, or for a value that it cannot take; `method` is a known one."""
    module = importlib.import_module(f"specviz.training.methods.{method}")
    lesson = getattr(module, module.lesson.__annotations__["return"])
    known = {p.name: p for p in inspect.signature(lesson.__init__).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    for name, value in knobs.items():
        if name not in known:
            raise BadInput(f"{method!r} has no knob {name!r} in training. Its knobs: {', '.join(f'{p.name}={p.default}' for p in known.values())}.")
        _check(name, value, str(known[name].annotation))


def _check(name: str, value: Any, kind: str) -> None:
    fits = {
        "int": (is_whole(value) and 1 <= value <= MOST_PARTS, f"a whole number from 1 to {MOST_PARTS}"),
        "float": (is_number(value) and value >= 0, "a number from 0"),
        "bool": (isinstance(value, bool), "true or false"),
    }
    right, expected = fits.get(kind, (True, ""))
    if not right:
        raise BadInput(f"--knob {name}={str(value)[:40]} cannot be. Expected {expected}.")
