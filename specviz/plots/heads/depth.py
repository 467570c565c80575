from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.analysis.head_report import Greedy, HeadReport
from specviz.plots.base import ACCEPTED, empty, figure
from specviz.plots.heads.base import NOT_MEASURED, add_other, label, other_name, roomy

HOVER = "depth %{x}: %{customdata[0]:,} of %{customdata[1]:,} rounds tested there accepted a token, %{y:.1%}"


def depth(report: HeadReport, others: Sequence[HeadReport] = ()) -> go.Figure:
    """Of the rounds that accepted down to the parent and had a candidate below it, the share that accepted one there."""
    main = report.main
    if main is None or not any(main.reached):
        return empty("Acceptance at each depth", NOT_MEASURED)
    drawn = roomy(figure("Acceptance, given the parent", f"depth in the tree of {main.nodes} nodes", "accepted"))
    places, shares, counts = _columns(main)
    drawn.add_bar(
        x=places,
        y=shares,
        name=label(report.method),
        legendrank=1,
        marker={"color": ACCEPTED, "line": {"width": 0}},
        text=[f"{share:.0%}" for share in shares],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        customdata=counts,
        hovertemplate=HOVER,
    )
    for place, other in enumerate(others):
        if other.main is None or not any(other.main.reached):
            continue
        depths, found, tested = _columns(other.main)
        add_other(drawn, place, other_name(other, report), list(zip(depths, found, strict=True)), customdata=tested, hovertemplate=HOVER)
    drawn.update_yaxes(range=[0, 1.04], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    drawn.update_xaxes(dtick=1 if len(places) <= 12 else None)
    drawn.update_layout(bargap=0.25, showlegend=len(drawn.data) > 1)
    return drawn


def _columns(one: Greedy) -> tuple[list[int], list[float], list[list[int]]]:
    """Returns depths that were reached, their shares, and [accepted, reached] of each."""
    found = [(place, share) for place, share in enumerate(one.conditional, 1) if share is not None]
    return [place for place, _ in found], [share for _, share in found], [[one.accepted[place - 1], one.reached[place - 1]] for place, _ in found]
