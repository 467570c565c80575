"""ZeroGPU: a host whose GPU is lent per call, to a function that runs in another process.

There the model must be loaded when the app is imported, arguments and events are pickled, and a callback cannot be asked from
the other side: so Stop closes the stream here and the recording is ended here. Untested on the real host; tests use a stand-in.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

from specviz.events import Event, Finished, Verified
from specviz.trace import Trace

SECONDS = 60  # of GPU time asked for per run


def enabled() -> bool:
    """True where the host lends its GPU per call and its package is installed."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "true") and importlib.util.find_spec("spaces") is not None


def gpu(function: Callable[..., Iterator[Event]]) -> Callable[..., Iterator[Event]]:
    """Returns the generator function as one that runs on the lent GPU."""
    wrapped: Callable[..., Iterator[Event]] = importlib.import_module("spaces").GPU(duration=SECONDS)(function)
    return wrapped


def until_stopped(events: Iterator[Event], stopped: Callable[[], bool], text: Callable[[list[int]], str]) -> Iterator[Event]:
    """Passes events through; after a stop it ends the stream and adds the Finished event that the other process no longer sends."""
    trace = Trace()
    for event in trace.record(events):
        yield event
        if isinstance(event, Verified) and stopped():
            close: Any = getattr(events, "close", None)
            if close is not None:
                close()
            yield cut_short(trace, text)
            return


def cut_short(trace: Trace, text: Callable[[list[int]], str], row: int = 0) -> Finished:
    """Returns the Finished event of a run that was stopped from outside, from what was recorded of it."""
    from specviz.analysis.summary import seconds_by_phase

    ids, rounds = trace.emitted(row), sum(isinstance(event, Verified) for event in trace.events)
    spent = {name: value or 0.0 for name, value in seconds_by_phase(trace, row).items()}
    return Finished(row, "stopped", tuple(ids), text(ids), rounds, {**spent, "wall": spent["total"] + spent["record"]})
