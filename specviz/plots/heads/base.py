"""What the figures of head reports share: names as text, the thin lines of other heads, shapes that grow and shapes that do not."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from specviz.analysis.head_report import Greedy, HeadReport
from specviz.plots.base import BASELINE, HEIGHT

NOT_MEASURED = "Not measured."
DASHES, SYMBOLS = ("dash", "dot", "dashdot", "longdash"), ("square", "diamond", "triangle-up", "x")  # other heads are grey: these tell them apart
LONGEST = 24  # characters of a name
LEGEND = 30  # pixels


def label(text: str) -> str:
    """Returns a name from a report as text that a figure shows as it is: it is no markup, and not longer than a legend can bear."""
    return escape(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…").replace("%{", "% {")


def comparable(a: HeadReport, b: HeadReport) -> bool:
    """True when both reports speak of the same text and the same target, so that their numbers may stand side by side."""
    return (a.text, a.target.weights) == (b.text, b.target.weights)


def other_name(other: HeadReport, chosen: HeadReport) -> str:
    """Returns the label of another head; one that was measured on other text says so."""
    return label(other.method) + ("" if comparable(other, chosen) else " (other text)")


def growing(report: HeadReport) -> dict[str, list[Greedy]]:
    """Returns the shapes that grow to a number of nodes, each with its sizes, smallest first; the shape of the main figure comes first."""
    found: dict[str, list[Greedy]] = {}
    for one in sorted((one for one in report.greedy if "nodes=" in one.spec), key=lambda one: one.nodes):
        found.setdefault(one.shape, []).append(one)
    first = report.main.shape if report.main else ""
    return dict(sorted(found.items(), key=lambda item: item[0] != first))


def fixed(report: HeadReport) -> list[Greedy]:
    """Returns the shapes that always have the same form, smallest first."""
    return sorted((one for one in report.greedy if "nodes=" not in one.spec), key=lambda one: one.nodes)


def roomy(drawn: go.Figure) -> go.Figure:
    """Returns the figure with its legend below, where it may take as many lines as heads and a narrow page ask for."""
    drawn.update_layout(height=HEIGHT + LEGEND, margin_t=40, legend={"y": -0.3, "yref": "paper", "yanchor": "top", "entrywidth": 0})
    return drawn


def add_other(drawn: go.Figure, place: int, name: str, points: Sequence[tuple[float, float]], **more: Any) -> None:
    """Adds the thin line of another head; `place` is its number among the others."""
    drawn.add_scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="lines+markers",
        name=name,
        line={"color": BASELINE, "width": 1.2, "dash": DASHES[place % len(DASHES)]},
        marker={"color": BASELINE, "size": 5, "symbol": SYMBOLS[place % len(SYMBOLS)]},
        **more,
    )
