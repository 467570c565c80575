"""What a head's report says, as HTML: in words for whoever sees one for the first time, and as tables. Every inserted text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from specviz.analysis.head_report import MAIN_NODES, Greedy, HeadReport, Sampled
from specviz.analysis.words import percents
from specviz.plots.heads.base import comparable
from specviz.ui import notes
from specviz.ui.installed import Head, measure

LARGE = 60  # nodes of the largest tree that heads are compared at
LONGEST = 120  # characters of a text that comes from a file
TAU = "τ is tokens per target forward: the bonus token counts, the prefill and its token do not. Nodes count the root."
PARENT = "Acceptance per depth: of the rounds that accepted down to the parent and had a candidate below it, the share that accepted one."


def headline(head: Head, weights: str | None, target: str) -> str:
    """Returns what a head is, how good it is and whether it fits the target; without a report, how to make one."""
    said = "".join(notes.message(text, "error") for text in head.problems) + "".join(notes.message(text, "warn") for text in head.warnings)
    if head.report is None and not any("report" in text for text in head.problems):
        said += notes.message(f"Not measured yet. Measure it with: {measure(head, target)}")
    facts = "".join(f"<div><b>{escape(value)}</b><span>{escape(text)}</span></div>" for value, text in _facts(head))
    words = "".join(f"<p>{text}</p>" for text in (_in_words(head.report), _fit(head, weights)) if text)
    return f'<div class="app-report app-card"><h2>{_text(head.name)}</h2><p>{_text(head.about)}</p>{said}<div class="app-facts">{facts}</div>{words}</div>'


def _facts(head: Head) -> list[tuple[str, str]]:
    found = []
    main = head.report.main if head.report else None
    if main is not None:
        found.append((f"{main.tau:.2f}", f"tokens per target forward (τ) with {main.nodes} nodes"))
        first = next(iter(main.conditional), None)
        if first is not None:
            found.append((f"{first:.0%}", "of rounds accept a draft of the next token"))
    if head.megabytes is not None:
        found.append((f"{head.megabytes:.1f} MB", "size of the head"))
    return [*found, *_training_facts(head.training)]


def _training_facts(training: Mapping[str, Any]) -> list[tuple[str, str]]:
    tokens, seconds, epochs = (_number(training.get(name)) for name in ("answer_tokens", "seconds", "epochs"))
    data = f" (data {training['data']})" if isinstance(training.get("data"), str) else ""
    found = [] if tokens is None else [(_count(tokens), f"answer tokens of training data{data[:LONGEST]}")]
    if seconds is not None:
        often = "" if epochs is None else f", {epochs:g} times over the data"
        found.append((duration(seconds), f"of training{often}{data[:LONGEST] if tokens is None else ''}"))
    return found


def _in_words(report: HeadReport | None) -> str:
    main = report.main if report else None
    if report is None or main is None:
        return ""
    text = report.text
    return (
        f"Plain decoding gets 1 token out of every forward of the target. With this head and a tree of {main.nodes} nodes a forward gives "
        f"<b>{main.tau:.2f}</b> on average: {main.tau - 1:.2f} drafted ones that were right, and the target's own. Measured at temperature 0 on "
        f"<b>{_text(text.name)}</b> ({text.prompts:,} prompts, {text.tokens:,} new tokens, at most {text.max_new_tokens:,} each), {_text(report.made)}."
    )


def _fit(head: Head, weights: str | None) -> str:
    if any("STALE" in text for text in head.warnings):
        return ""
    if weights is None:
        return "Not compared with the target: it is not loaded, and not under models/."
    measured = " and measured" if head.report else ""
    return f"Trained{measured} against exactly the target that is installed (weights {_text(weights)})." if head.trained_against == weights else ""


def sections(report: HeadReport) -> str:
    """Returns the tables of a report."""
    return f'<div class="app-sections">{_kinds(report)}{_temperatures(report)}{_checks(report)}{_evaluation(report)}</div>'


def _kinds(report: HeadReport) -> str:
    main = report.main
    kinds = sorted((main.categories if main else {}).items(), key=lambda kind: -kind[1])
    caption = "Not measured." if main is None or not kinds else f"τ for each kind of prompt, tree {main.spec}, temperature 0."
    return _section("Kinds of prompts", _table(("kind", "τ"), ((kind, f"{tau:.3f}") for kind, tau in kinds)), caption)


def _temperatures(report: HeadReport) -> str:
    rows = [("0", report.text.prompts, report.main)] if report.main else []
    hot: list[tuple[str, int, Greedy | Sampled]] = [*rows, *((f"{one.temperature:g}", one.prompts, one) for one in report.sampled)]
    cells = ((heat, f"{prompts:,}", f"{one.tau:.3f}", _shares(one.conditional)) for heat, prompts, one in hot)
    caption = (
        f"Tree {report.sampled[0].spec}; above temperature 0 it really decodes. {TAU} {PARENT}" if report.sampled else "Above temperature 0: not measured."
    )
    return _section("Temperature", _table(("T", "prompts", "τ", "acceptance per depth"), cells), caption)


def _checks(report: HeadReport) -> str:
    checked, misses = report.checked, report.misses
    decoded = (
        "Checked by decoding: not measured."
        if checked is None
        else f"Checked by really decoding {checked.prompts:,} prompts with {_text(checked.spec)}: τ <b>{checked.decoded:.3f}</b>, off line "
        f"{checked.off_line:.3f} on the same prompts, {abs(checked.off_line - checked.decoded) / max(checked.decoded, 1e-9):.1%} apart. "
        "Off line means along the target's recorded text, without running the target."
    )
    outside = (
        f"<b>{misses.outside / misses.tokens:.2%}</b> of the text's tokens ({misses.outside:,} of {misses.tokens:,}) are outside the draft vocabulary: there a draft can only miss."
        if misses.tokens
        else "Misses of the draft vocabulary: not measured."
    )
    return _section("Checks", f"<p>{decoded}</p><p>{outside}</p>", f"The report took {duration(report.seconds)}. Checkpoint {report.checkpoint[:LONGEST]}.")


def _evaluation(report: HeadReport) -> str:
    if not report.evaluation:
        return ""
    rows = [(name, f"{value:g}") for name, value in report.evaluation.items()]
    return _section(
        "Evaluation of this target",
        _table(("result", "value"), rows),
        "Results that were given to the report: they stand beside τ, specviz did not measure them.",
    )


def trees(report: HeadReport) -> str:
    """Returns every measured tree: the twin of the figures for whoever reads numbers."""
    rows = ((one.spec, str(one.nodes), f"{one.tau:.3f}", f"{one.rounds:,}", _shares(one.conditional)) for one in report.greedy)
    return f'{_table(("tree", "nodes", "τ", "rounds", "acceptance per depth"), rows)}<p class="app-caption">{escape(f"Temperature 0. {TAU} {PARENT}")}</p>'


def settings(head: Head) -> str:
    """Returns the settings of the head's training."""
    return (
        _table(("setting", "value"), ((name, str(value)) for name, value in head.training.items()))
        or "<p>The head's config.json holds no training settings.</p>"
    )


def overview(heads: Mapping[str, Head], chosen: str) -> str:
    """Returns all installed heads side by side."""
    reports = [head.report for head in (heads[chosen], *heads.values()) if head.report]
    rows = [_overview_row(head, reports[0] if reports else None) for head in heads.values()]
    names = ("head", "τ, chain", f"τ, {MAIN_NODES} nodes", f"τ, {LARGE} nodes", "τ, T = 1", "size", "")
    return _section("All heads of this target", _table(names, rows), f"{TAU} Temperature 0 except for T = 1.")


def _overview_row(head: Head, first: HeadReport | None) -> tuple[str, ...]:
    """Returns the cells of a head; numbers of another text than that of the `first` report say so."""
    report, size = head.report, "–" if head.megabytes is None else f"{head.megabytes:.1f} MB"
    if report is None:
        return head.name, "–", "–", "–", "–", size, "cannot be read" if head.problems else "not measured yet"
    chain = next((one.tau for one in report.greedy if one.shape == "chain"), None)
    hot = next((one.tau for one in report.sampled if one.temperature == 1.0), None)
    grown = [found.tau if (found := report.grown(nodes)) else None for nodes in (MAIN_NODES, LARGE)]
    marks = ["STALE"] if any("STALE" in text for text in head.warnings) else []
    marks += ["other text"] if first is not None and not comparable(first, report) else []
    return head.name, *("–" if tau is None else f"{tau:.2f}" for tau in (chain, *grown, hot)), size, ", ".join(marks)


def download(name: str, report: bytes) -> str:
    """Returns a link that saves a report file; the file travels in the link, so that nothing of the server's disk is opened for it."""
    held = base64.b64encode(report).decode("ascii")
    return f'<a class="app-download" download="{escape(name)}-report.json" href="data:application/json;base64,{held}">Download report.json</a>'


def _shares(found: Sequence[float | None]) -> str:
    return f"{percents(found)} %" if found else "–"


def _section(title: str, body: str, caption: str) -> str:
    return f'<section class="app-card"><h3>{escape(title)}</h3>{body}<p class="app-caption">{_text(caption, 600)}</p></section>'


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table whose first column names its rows; empty without rows."""
    lines = "".join(f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in rest)}</tr>' for first, *rest in rows)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f'<div class="app-table"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>' if lines else ""


def _text(text: str, longest: int = LONGEST) -> str:
    return escape(text if len(text) <= longest else text[:longest] + "…")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15 else None


def _count(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.0f} k" if value >= 1e4 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
