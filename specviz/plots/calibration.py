from __future__ import annotations

import plotly.graph_objects as go

from specviz.analysis.acceptance import calibration as bins_of
from specviz.plots.base import ACCEPTED, BASELINE, DRAFT, empty, figure
from specviz.trace import Trace


def calibration(trace: Trace, row: int = 0) -> go.Figure:
    """Draft confidence against what came of it, over candidates whose parent was accepted; the diagonal is a draft that knows itself."""
    bins = bins_of(trace, row)
    if not bins:
        return empty("Draft confidence and acceptance", "No drafted token was judged yet.")
    drawn = figure("Does the draft's confidence hold?", "draft confidence q", "share")
    drawn.add_scatter(x=[0, 1], y=[0, 1], mode="lines", name="perfect", line={"color": BASELINE, "dash": "dash", "width": 1.5}, hoverinfo="skip")
    x, counts = [one.confidence for one in bins], [one.count for one in bins]
    judged = [one for one in bins if one.target is not None]
    drawn.add_scatter(
        x=[one.confidence for one in judged],
        y=[one.target for one in judged],
        mode="lines",
        name="target's p",
        line={"color": DRAFT, "dash": "dot", "width": 2},
        hovertemplate="mean q %{x:.2f}, mean target p %{y:.2f}<extra></extra>",
    )
    drawn.add_scatter(
        x=x,
        y=[one.accepted for one in bins],
        mode="lines+markers",
        name="accepted",
        line={"color": ACCEPTED, "width": 2},
        marker={"size": [5 + min(10.0, count**0.5) for count in counts]},
        customdata=counts,
        hovertemplate="%{customdata} candidates with mean q %{x:.2f}: %{y:.0%} accepted<extra></extra>",
    )
    drawn.update_xaxes(range=[-0.03, 1.03])
    drawn.update_yaxes(range=[0, 1.05])
    return drawn
