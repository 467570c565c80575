"""Two runs of the same prompt and seed: is the text the same, and if not, where and by how little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from specviz.events import Verified
from specviz.trace import Trace

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Difference:
    """The first place where two texts part: index among the new tokens, both token ids (None: that text had ended).

    gap: how far the target's numbers for the two tokens lie apart; resolution: how finely the dtype tells such numbers apart.
    Both are in `unit`: "logit" at temperature 0, "probability" above it (distance of the draw from the edge it fell beside).
    None where it is not known. epsilon is the dtype's relative spacing.
    """

    position: int
    baseline: int | None
    other: int | None
    gap: float | None = None
    resolution: float | None = None
    unit: str = "logit"
    dtype: str | None = None
    epsilon: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def first_difference(baseline: Sequence[int], other: Sequence[int]) -> Difference | None:
    """Returns where two lists of new token ids part, None when they are equal."""
    for position, (a, b) in enumerate(zip_longest(baseline, other)):
        if a != b:
            return Difference(position, a, b)
    return None


def compare(baseline: Trace, other: Trace, row: int = 0) -> Difference | None:
    """Returns the first difference of two recorded runs, None when the texts are equal.

    The gap is read from the recorded probabilities (their six decimals allow), the dtype from the meta record.
    """
    found = first_difference(baseline.emitted(row), other.emitted(row))
    if found is None:
        return None
    dtype = other.started(row).meta.get("dtype")
    gap = recorded_gap(baseline, found, row)
    if gap is None:
        gap = recorded_gap(other, found, row)
    known = dtype if isinstance(dtype, str) else None
    return Difference(found.position, found.baseline, found.other, gap, None, "logit", known, EPSILON.get(known or ""))


def recorded_gap(trace: Trace, difference: Difference, row: int = 0) -> float | None:
    """Returns how far apart the target's logits of the two tokens are, from the recorded top tokens; None if one is not among them."""
    top = dict(_top_before(trace, difference.position, row))
    a, b = top.get(difference.baseline), top.get(difference.other)
    return abs(math.log(a / b)) if a and b else None


def _top_before(trace: Trace, position: int, row: int) -> list[tuple[int | None, float]]:
    """The target's recorded top tokens for the new token at `position`."""
    first, count = trace.prefilled(row), 1
    if position == 0:
        return [(token, p) for token, p in first.top] if first else []
    for event in trace.events:
        if isinstance(event, Verified) and event.row == row:
            if position < count + len(event.emitted):
                place = position - count
                node = event.path[place - 1] if place else 0
                return [(token, p) for token, p in event.tops.get(str(node), ())]
            count += len(event.emitted)
    return []
