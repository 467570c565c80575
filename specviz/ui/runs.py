"""One run of the page, step by step: wait for the model, warm up, decode, then measure plain decoding. No gradio here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.analysis.summary import baseline_record
from specviz.errors import SpecvizError
from specviz.events import Prefilled, Verified
from specviz.trace import Trace
from specviz.ui.engine import Ask, Engine

log = logging.getLogger(__name__)
RUN_PROBLEMS = (SpecvizError, RuntimeError, ValueError, IndexError, OSError)
TICK = 0.25  # seconds between two messages while nothing can be drawn
FRAME = 0.2  # seconds from one picture of a run to the next: what is drawn and sent between two rounds makes the next one slower, as it finds cold caches
MOST_ROUNDS = 32  # sent in one picture; where more came since the last one, the end of the run fills the gaps
MEASURING = "Measuring this machine once, to choose how many nodes to verify per round. This takes some seconds; later runs know it."
Stopped = Callable[[], bool]


@dataclass(frozen=True)
class Step:
    """One moment that the page can show.

    stage    waiting, warming, drafting, plain, done, stopped or failed
    trace    what was recorded so far; None until the first round is complete, so that the screen keeps what it showed
    message  one plain sentence
    newest   rounds to send: those that came since the last picture but one, so that a browser that missed a picture has no gap
    """

    stage: str
    message: str
    trace: Trace | None = None
    newest: int = 0

    @property
    def last(self) -> bool:
        return self.stage in ("done", "stopped", "failed")


def play(engine: Engine, ask: Ask, *, plain: bool, stopped: Stopped = lambda: False) -> Iterator[Step]:
    """Yields the steps of one run; errors end it with a failed step and are never raised. `plain` also measures plain decoding."""
    trace = Trace()
    try:
        yield from ready(engine, [ask, ask.plain()] if plain else [ask], stopped)
        yield from drafting(engine, ask, trace, stopped)
        if plain and not stopped() and ask.spec.drafter != "autoregressive":
            record = yield from measure_plain(engine, ask, trace, stopped)
            trace = trace.with_baseline(record) if record else trace
        yield closing(trace, stopped)
    except RUN_PROBLEMS as problem:
        yield failed(problem, trace)


def drafting(engine: Engine, ask: Ask, trace: Trace, stopped: Stopped) -> Iterator[Step]:
    """Decodes into `trace` and yields a step for the first round, then at most one every FRAME seconds, and one for the last round."""
    if stopped():
        return
    drawn, before, due = 0, 0, 0.0  # rounds in the last picture and in the one before it, and when the next is due
    rounds = 0
    for event in trace.record(engine.events(ask, stopped=stopped)):
        if isinstance(event, Verified):
            rounds = event.round + 1
            if time.monotonic() >= due:
                yield _picture(ask, trace, rounds, rounds - before)
                drawn, before, due = rounds, drawn, time.monotonic() + FRAME  # from when it went out
        elif isinstance(event, Prefilled):
            yield Step("drafting", "The prompt is read; drafting begins.")
    if rounds > drawn:
        yield _picture(ask, trace, rounds, rounds - before)


def _picture(ask: Ask, trace: Trace, rounds: int, newest: int) -> Step:
    return Step("drafting", f"Round {rounds}: {len(trace.emitted())} of at most {ask.max_new_tokens} tokens.", trace, min(newest, MOST_ROUNDS))


def closing(trace: Trace, stopped: Stopped) -> Step:
    """Returns the last step of a run that nothing went wrong in."""
    if not stopped():
        return Step("done", "", trace)
    kept = _shown(trace)
    return Step("stopped", "Stopped. What was decoded so far is kept." if kept else "Stopped before the first round; the screen shows what it showed.", kept)


def failed(problem: Exception, trace: Trace) -> Step:
    """Returns the last step of a run that an error ended; anything unexpected goes to the log with its traceback."""
    if not isinstance(problem, SpecvizError):
        log.error("a run failed", exc_info=problem)
    return Step("failed", str(problem) or type(problem).__name__, _shown(trace))


def ready(engine: Engine, asks: Sequence[Ask], stopped: Stopped) -> Iterator[Step]:
    """Waits for the model and warms up everything that will be timed. Raises BadInput for a bad prompt before anything runs."""
    while not engine.wait(TICK).settled and not stopped():
        yield Step("waiting", f"{engine.state.text} The run starts as soon as the model is there.")
    for ask in asks:
        if not stopped():
            engine.encode(ask)
            yield Step("warming", MEASURING if engine.must_measure(ask) else "Warming up.")
            engine.warm_up(ask)


def measure_plain(engine: Engine, ask: Ask, trace: Trace, stopped: Stopped) -> Generator[Step, None, dict[str, Any] | None]:
    """Decodes the prompt of `ask` plainly, with the same seed; returns the baseline record, or None when it was stopped."""
    baseline, shown = Trace(), 0.0
    finished = trace.finished()
    limit = len(finished.tokens) if finished is not None else ask.max_new_tokens
    for _ in baseline.record(engine.events(ask.plain(), detail=False, stopped=stopped)):
        if time.monotonic() - shown > TICK:
            shown = time.monotonic()
            yield Step("plain", f"Now the same prompt and seed by plain decoding, to compare: {len(baseline.emitted())} of about {limit} tokens.", trace)
    return None if stopped() else baseline_record(baseline)


def _shown(trace: Trace) -> Trace | None:
    """A recording without a complete round is not worth replacing what is on screen."""
    return trace if any(isinstance(event, Verified) for event in trace.events) else None
