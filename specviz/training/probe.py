"""Short measured probes of the target, so that a long step can say beforehand about how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specviz.training.distil import Writing
from specviz.training.writer import Ask, write

if TYPE_CHECKING:
    from specviz.target import Target

ROWS, STEPS, FORWARD = 16, 4, 512  # answers written, tokens of each, tokens of the plain forward
Clock = Callable[[], float]


def writing_seconds(target: Target, writing: Writing, answers: int, clock: Clock = time.monotonic) -> float:
    """Returns about how many seconds `answers` answers take when all are as long as allowed; writes a few tokens to find out."""
    rows = min(ROWS, writing.batch, answers)
    prompt = target.encode("a few words")
    asks = [Ask(prompt, 1.0, 1)] * rows
    write(target, asks[:1], seed=0, batch=1)  # warm
    start = clock()
    write(target, asks, seed=0, batch=rows)
    begun = clock()
    write(target, [Ask(prompt, 1.0, STEPS)] * rows, seed=0, batch=rows)
    beginning, whole = begun - start, clock() - begun
    step = max(0.0, whole - beginning) / ((STEPS - 1) * rows)  # seconds per token
    return answers * (beginning / rows + step * writing.max_new_tokens)


def forward_speed(target: Target, ids: Sequence[int], clock: Clock = time.monotonic) -> float:
    """Returns tokens per second of a plain forward over the first tokens of `ids`."""
    part = list(ids[: min(FORWARD, target.context)])
    target.prefill(part[:8], target.new_cache(1, 8))  # warm
    start = clock()
    target.prefill(part, target.new_cache(1, len(part)))
    return len(part) / max(clock() - start, 1e-6)


def in_words(seconds: float) -> str:
    """Returns a rough duration: 40 seconds, 12 minutes, 3 hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
