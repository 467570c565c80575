from __future__ import annotations

import plotly.graph_objects as go

from specviz.analysis.summary import summarise
from specviz.analysis.timeline import timeline
from specviz.plots.base import ACCEPTED, BASELINE, empty, figure
from specviz.trace import Trace


def race(trace: Trace, row: int = 0) -> go.Figure:
    """Tokens over target forwards; plain decoding gains exactly one token per forward."""
    line, tau = timeline(trace, row), summarise(trace, row).tau
    if tau is None:
        return empty("Tokens per target forward", "No round yet.")
    drawn = figure(f"{tau:.2f} tokens per target forward", "target forwards", "new tokens")
    last = line.tokens[-1] - 1  # plain decoding needs that many forwards for the same text
    drawn.add_scatter(
        x=[0, last],
        y=[1, last + 1],
        mode="lines",
        name="plain decoding",
        line={"color": BASELINE, "dash": "dash", "width": 2},
        hovertemplate="%{y} tokens after %{x} forwards<extra>plain decoding</extra>",
    )
    drawn.add_scatter(
        x=line.forwards,
        y=line.tokens,
        mode="lines",
        name="this run",
        line={"color": ACCEPTED, "width": 2.5, "shape": "hv"},
        hovertemplate="%{y} tokens after %{x} forwards<extra>this run</extra>",
    )
    return drawn
