from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.analysis.head_report import HeadReport
from specviz.plots.base import ACCEPTED, DRAFT, empty, figure
from specviz.plots.heads.base import NOT_MEASURED, roomy


def loss(report: HeadReport, others: Sequence[HeadReport] = ()) -> go.Figure:
    """What the training made smaller (loss, left axis), and τ of a chain of drafts on prompts that were held out of it (right axis). Losses of two methods are not comparable."""
    if not report.loss and not report.held_out:
        return empty("Loss and held-out τ", NOT_MEASURED)
    drawn = roomy(figure("Loss and held-out τ", "training step", "loss"))
    if report.loss:
        drawn.add_scatter(
            x=[point.step for point in report.loss],
            y=[point.value for point in report.loss],
            mode="lines",
            name="loss",
            line={"color": DRAFT, "width": 1.8},
            hovertemplate="step %{x:,}: loss %{y:.3f}",
        )
    if report.held_out:
        drawn.add_scatter(
            x=[point.step for point in report.held_out],
            y=[point.value for point in report.held_out],
            mode="lines+markers",
            name="held-out τ",
            yaxis="y2",
            line={"color": ACCEPTED, "width": 2.5},
            marker={"size": 5},
            hovertemplate="step %{x:,}: τ %{y:.3f}",
        )
        drawn.update_layout(
            yaxis2={
                "overlaying": "y",
                "side": "right",
                "showgrid": False,
                "zeroline": False,
                "fixedrange": True,
                "automargin": True,
                "title": {"text": "τ of a chain", "standoff": 6},
            }
        )
    drawn.update_yaxes(rangemode="normal", selector={"overlaying": None})
    return drawn
