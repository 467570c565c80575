from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.analysis.acceptance import CalibrationBin
from specviz.analysis.acceptance import calibration as bins_of
from specviz.plots.base import ACCEPTED, BASELINE, DRAFT, empty, figure
from specviz.trace import Trace


def calibration(trace: Trace, row: int = 0) -> go.Figure:
    """Draft confidence against what came of it, over candidates whose parent was accepted; the diagonal is a draft that knows itself."""
    bins = bins_of(trace, row)
    if not bins:
        return empty("Draft confidence and acceptance", "No drafted token was accepted or rejected yet.")
    return reliability(bins)


def reliability(bins: Sequence[CalibrationBin]) -> go.Figure:
    """Returns the diagram of filled bins; each point carries its number of candidates."""
    drawn = figure("Does the confidence hold?", "draft confidence q", "share")
    drawn.add_scatter(x=[0, 1], y=[0, 1], mode="lines", name="perfect", line={"color": BASELINE, "dash": "dash", "width": 1.5}, hoverinfo="skip")
    x, counts = [one.confidence for one in bins], [one.count for one in bins]
    judged = [one for one in bins if one.target is not None]
    if judged:
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
        mode="lines+markers+text",
        name="accepted",
        text=[short(count) for count in counts],
        textposition=["bottom right" if confidence < 0.9 else "bottom center" for confidence in x],  # inward at the right edge
        textfont={"size": 10},
        cliponaxis=False,
        line={"color": ACCEPTED, "width": 2},
        marker={"size": [5 + min(10.0, count**0.5) for count in counts]},
        customdata=counts,
        hovertemplate="%{customdata} candidates with mean q %{x:.2f}: %{y:.0%} accepted<extra></extra>",
    )
    drawn.update_xaxes(range=[-0.03, 1.03])
    drawn.update_yaxes(range=[0, 1.05])
    return drawn


def short(count: int) -> str:
    """Returns a count in a few characters: 940, 9.4k, 94k."""
    return str(count) if count < 1000 else f"{count / 1000:.{1 if count < 9950 else 0}f}k"
