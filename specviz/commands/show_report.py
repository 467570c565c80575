"""Head reports in a terminal: the table of a report, and what changed between two."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specviz.analysis.gate import Comparison
from specviz.analysis.head_report import HeadReport
from specviz.analysis.words import percents
from specviz.commands.show import ACCEPTED, FAINT, REJECTED, flowing, grid


def report_table(report: HeadReport) -> Table:
    """Returns tau and acceptance per depth of every spec, sampled ones included."""
    table = grid()
    table.add_column("spec", no_wrap=True)
    for name in ("T", "nodes", "tau", "accepted by depth, %"):
        table.add_column(name, justify="right")
    for one in report.greedy:
        table.add_row(_safe(one.spec), "0", str(one.nodes), f"{one.tau:.3f}", percents(one.conditional))
    for hot in report.sampled:
        table.add_row(_safe(hot.spec), f"{hot.temperature:g}", str(hot.nodes), f"{hot.tau:.3f}", percents(hot.conditional))
    return table


def evaluation_table(reports: list[HeadReport]) -> Table:
    """Returns tau of every head of one target beside that target's evaluation results."""
    table = grid()
    table.add_column("head")
    table.add_column("spec", no_wrap=True)
    table.add_column("tau", justify="right")
    names = list(dict.fromkeys(name for report in reports for name in report.evaluation or ()))
    for name in names:
        table.add_column(_safe(name), justify="right")
    for report in reports:
        found = report.evaluation or {}
        values = [f"{found[name]:g}" if name in found else "-" for name in names]
        main = report.main
        table.add_row(_safe(report.method), _safe(main.spec if main else "-"), f"{main.tau:.3f}" if main else "-", *values)
    return table


def print_comparison(out: Console, old: HeadReport, new: HeadReport, found: Comparison, max_drop: float) -> None:
    """Prints every number of both reports, and in words what fell by more than the share."""
    table = grid()
    table.add_column("number")
    for name in ("old", "new", "change"):
        table.add_column(name, justify="right")
    fallen = found.fallen(max_drop)
    for one in found.changes:
        style = REJECTED if one in fallen else ACCEPTED if one.drop < 0 else ""
        table.add_row(_safe(one.what), f"{one.old:.3f}", f"{one.new:.3f}", Text(f"{0.0 - one.drop:+.1%}", style))
    out.print(table)
    for text in found.missing:
        out.print(_safe(f"MISSING: {text}", REJECTED))
    for text in found.left_out:
        out.print(_safe(f"not judged: {text}", FAINT))
    if old.target.weights != new.target.weights:
        same = old.checkpoint == new.checkpoint
        advice = "the head is the same: it is stale if it fell, train it again" if same else "the head was trained again"
        out.print(_safe(f"The target changed from {old.target.weights} to {new.target.weights}; {advice}."))
    for one in fallen:
        out.print(_safe(f"FELL {one.drop:.1%}: {one.what}, {one.old:.3f} -> {one.new:.3f}", REJECTED))
    allowed = f"more than {max_drop:.1%}"
    told = f"{len(fallen)} of {len(found.changes)} numbers fell by {allowed}" if fallen else f"Nothing fell by {allowed}"
    out.print(told + (f"; {len(found.missing)} of the old report are missing." if found.missing else "."), markup=False)


def _safe(text: str, style: str = "") -> Text:
    """A report may come from anywhere: its words are shown as they are, never obeyed."""
    return Text(flowing(text), style)
