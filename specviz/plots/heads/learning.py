from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.analysis.head_report import HeadReport
from specviz.plots.base import ACCEPTED, DRAFT, empty, figure
from specviz.plots.heads.base import NOT_MEASURED, roomy

LOOKS = {
    "data": ("trained on so much data", "lines+markers", {"color": ACCEPTED, "width": 2.5}),
    "training": ("during this training", "lines", {"color": DRAFT, "width": 2, "dash": "dot"}),
}


def learning(report: HeadReport, others: Sequence[HeadReport] = ()) -> go.Figure:
    """τ of a chain of drafts on held-out answers, over answer tokens. A point is a training of its own on a part of the data; the dotted line is one training on its way, epochs repeated."""
    if not report.learning_curve:
        return empty("What more data brings", NOT_MEASURED)
    drawn = roomy(figure("What more data brings", "answer tokens", "τ of a chain"))
    for kind, (name, mode, line) in LOOKS.items():
        points = sorted((point for point in report.learning_curve if (point.kind == "data") == (kind == "data")), key=lambda point: point.tokens)
        if not points:
            continue
        drawn.add_scatter(
            x=[point.tokens for point in points],
            y=[point.tau for point in points],
            mode=mode if len(points) > 1 else "markers",
            name=name,
            line=line,
            marker={"size": 7},
            customdata=[f", gone through {point.epochs:g} times" if point.epochs else "" for point in points],
            hovertemplate="%{x:,} answer tokens%{customdata}: τ %{y:.3f}",
        )
    drawn.update_xaxes(rangemode="tozero", tickformat="~s")
    drawn.update_yaxes(rangemode="normal")
    return drawn
