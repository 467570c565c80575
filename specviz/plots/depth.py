from __future__ import annotations

import plotly.graph_objects as go

from specviz.analysis.acceptance import acceptance_by_depth
from specviz.plots.base import ACCEPTED, empty, figure
from specviz.trace import Trace


def depth(trace: Trace, row: int = 0) -> go.Figure:
    """Acceptance per depth, given that the parent was accepted and had a candidate below it."""
    found = acceptance_by_depth(trace.rounds(row))
    shares = [(place, share, found.accepted[place - 1], found.tested[place - 1]) for place, share in enumerate(found.conditional, 1) if share is not None]
    if not shares:
        return empty("Acceptance at each depth", "No drafted token was tested yet.")
    drawn = figure("Acceptance, given the parent", "depth in the tree", "accepted")
    drawn.add_bar(
        x=[place for place, *_ in shares],
        y=[share for _, share, *_ in shares],
        marker={"color": ACCEPTED, "line": {"width": 0}},
        text=[f"{share:.0%}" for _, share, *_ in shares],
        textposition="outside",
        cliponaxis=False,
        customdata=[[accepted, tested] for *_, accepted, tested in shares],
        hovertemplate="depth %{x}: %{customdata[0]} of %{customdata[1]} rounds tested there accepted a token<extra></extra>",
    )
    drawn.update_yaxes(range=[0, 1.12], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1])
    drawn.update_xaxes(dtick=1 if len(shares) <= 12 else None)
    drawn.update_layout(bargap=0.25, showlegend=False, margin_t=40)
    return drawn
