"""Side by side: two runs that differ in one thing, then plain decoding, one after the other. No gradio here."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from specviz.analysis.compare import first_difference
from specviz.analysis.summary import baseline_of, measured_speedup, summarise
from specviz.trace import Trace
from specviz.ui.engine import Ask, Engine
from specviz.ui.runs import RUN_PROBLEMS, Step, Stopped, closing, drafting, failed, measure_plain, ready

COLUMNS = ("A", "B")


@dataclass(frozen=True)
class PairStep:
    """One moment of a comparison: which column it is about, its step, and both traces so far (None: nothing to show yet)."""

    column: int
    step: Step
    traces: tuple[Trace | None, Trace | None]


def play_pair(engine: Engine, asks: Sequence[Ask], stopped: Stopped) -> Iterator[PairStep]:
    """Yields the steps of A, B and of the plain runs that both are measured against; equal sampling shares one plain run."""
    traces = [Trace(), Trace()]
    column = 0
    try:
        for step in ready(engine, [*asks, asks[0].plain()], stopped):
            yield _pair(0, step, traces)
        for column, ask in enumerate(asks):
            for step in drafting(engine, ask, traces[column], stopped):
                yield _pair(column, step, traces)
        known: dict[str, dict[str, Any] | None] = {}
        for column, ask in enumerate(asks):
            key = repr(ask.plain())
            if key not in known and not stopped():
                known[key] = yield from _measured(engine, ask, traces, column, stopped)
            record = known.get(key)
            traces[column] = traces[column].with_baseline(record) if record else traces[column]
        yield _pair(1, closing(traces[1], stopped), traces)
    except RUN_PROBLEMS as problem:
        yield _pair(column, failed(problem, traces[column]), traces)


def _measured(engine: Engine, ask: Ask, traces: Sequence[Trace], column: int, stopped: Stopped) -> Generator[PairStep, None, dict[str, Any] | None]:
    """Passes on the steps of a plain run and returns its record."""
    flow = measure_plain(engine, ask, traces[column], stopped)
    while True:
        try:
            yield _pair(column, next(flow), traces)
        except StopIteration as end:
            record: dict[str, Any] | None = end.value
            return record


def _pair(column: int, step: Step, traces: Sequence[Trace]) -> PairStep:
    shown = [trace if trace.rounds() else None for trace in traces]
    return PairStep(column, step, (shown[0], shown[1]))


def table(traces: Sequence[Trace | None], labels: Sequence[str]) -> str:
    """Returns the numbers of both runs and of their plain runs as an HTML table; texts are escaped."""
    rows = [_row(label, trace) for label, trace in zip(labels, traces, strict=True) if trace is not None]
    if not rows:
        return ""
    plain = next((baseline for trace in traces if trace is not None and (baseline := baseline_of(trace)) is not None), None)
    if plain is not None:
        rate = "–" if plain.tokens_per_second is None else f"{plain.tokens_per_second:.1f}"
        rows.append(_cells("plain decoding", "1.00", rate, "1.00×", str(max(0, plain.tokens - 1)), str(plain.tokens), "–"))
    heads = ("", "tokens per forward (τ)", "tokens per second", "speed-up", "target forwards", "new tokens", "same text as plain")
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return f'<div class="app-table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _row(label: str, trace: Trace) -> str:
    numbers, speedup, baseline = summarise(trace), measured_speedup(trace), baseline_of(trace)
    same = "–"
    if baseline is not None and baseline.token_ids:
        found = first_difference(baseline.token_ids, trace.emitted())
        same = "yes" if found is None else f"differs from token {found.position + 1}"
    return _cells(
        label, _number(numbers.tau, 2), _number(numbers.tokens_per_second, 1), "–" if speedup is None else f"{speedup:.2f}×",
        str(numbers.target_forwards), str(numbers.new_tokens), same,
    )  # fmt: skip


def _cells(label: str, *values: str) -> str:
    return f'<tr><th scope="row">{escape(label)}</th>{"".join(f"<td>{escape(value)}</td>" for value in values)}</tr>'


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
