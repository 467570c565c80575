"""How tokens came in: over target forwards and over seconds of decoding."""

from __future__ import annotations

from dataclasses import dataclass

from specviz.events import Verified
from specviz.trace import Trace

DECODING = ("draft", "verify", "accept", "commit")  # the phases that count as decoding time


@dataclass(frozen=True)
class Timeline:
    """After each target forward: how many new tokens stood, and how many seconds of decoding had passed.

    The first entry is the prefill's: 0 forwards, 1 token, 0 seconds.
    """

    forwards: tuple[int, ...]
    tokens: tuple[int, ...]
    seconds: tuple[float, ...]


def timeline(trace: Trace, row: int = 0) -> Timeline:
    """Returns the timeline of one row, empty before its prefill."""
    if trace.prefilled(row) is None:
        return Timeline((), (), ())
    forwards, tokens, seconds = [0], [1], [0.0]
    for event in trace.events:
        if isinstance(event, Verified) and event.row == row:
            forwards.append(forwards[-1] + 1)
            tokens.append(tokens[-1] + len(event.emitted))
            seconds.append(seconds[-1] + sum(event.seconds.get(name) or 0.0 for name in DECODING))
    return Timeline(tuple(forwards), tuple(tokens), tuple(seconds))
