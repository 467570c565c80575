from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.analysis.head_report import Greedy, HeadReport
from specviz.plots.base import ACCEPTED, DRAFT, empty, figure
from specviz.plots.heads.base import NOT_MEASURED, add_other, fixed, growing, label, other_name, roomy

HOVER = "%{x} nodes: τ %{y:.3f} over %{customdata:,} rounds"
GROWN = ({"color": ACCEPTED, "width": 3}, {"color": DRAFT, "width": 2.5, "dash": "dot"})  # lines of the main shape and of further ones
STILL = {"size": 9, "symbol": "diamond-open", "color": ACCEPTED, "line": {"width": 2}}


def tree_size(report: HeadReport, others: Sequence[HeadReport] = ()) -> go.Figure:
    """τ is tokens per target forward: the bonus token counts, the prefill and its token do not. Nodes count the root. Plain decoding has τ 1."""
    if not report.greedy:
        return empty("Tokens per forward, by tree size", NOT_MEASURED)
    drawn = roomy(figure("Tokens per forward, by tree size", "nodes in the tree", "τ"))
    for place, other in enumerate(others):
        for sizes in list(growing(other).values())[:1]:
            line = [(one.nodes, one.tau) for one in sizes]
            add_other(drawn, place, other_name(other, report), line, customdata=[one.rounds for one in sizes], hovertemplate=HOVER)
    shapes = growing(report)
    for place, (shape, sizes) in enumerate(shapes.items()):
        name = label(report.method) if len(shapes) == 1 else label(f"{report.method}, {shape}")
        _add(drawn, sizes, name=name, legendrank=1, mode="lines+markers", line=GROWN[min(place, 1)], marker={"size": 7})
    points = fixed(report)
    if points:
        _add(
            drawn, points, showlegend=False, name=f"{label(report.method)}, fixed trees", mode="markers+text", marker=STILL,
            text=[label(one.shape) for one in points], textposition=_beside(points), textfont={"size": 11}, cliponaxis=False,
        )  # fmt: skip
    highest = max((y for trace in drawn.data for y in trace.y), default=1.0)
    drawn.update_yaxes(range=[1.0, max(1.2, 1.0 + (highest - 1.0) * 1.12)])
    return drawn


def _beside(points: Sequence[Greedy]) -> list[str]:
    """Returns where each label goes: neighbours on different sides, and inward, so that none leaves the figure."""
    last, order = max(one.nodes for one in points), sorted(points, key=lambda one: one.nodes)
    return ["bottom left" if one.nodes > last / 2 else ("bottom right", "top left")[order.index(one) % 2] for one in points]


def _add(drawn: go.Figure, sizes: Sequence[Greedy], **look: object) -> None:
    drawn.add_scatter(x=[one.nodes for one in sizes], y=[one.tau for one in sizes], customdata=[one.rounds for one in sizes], hovertemplate=HOVER, **look)
