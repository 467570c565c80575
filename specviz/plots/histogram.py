from __future__ import annotations

import plotly.graph_objects as go

from specviz.analysis.summary import summarise
from specviz.plots.base import ACCEPTED, BASELINE, empty, figure
from specviz.trace import Trace


def histogram(trace: Trace, row: int = 0) -> go.Figure:
    """Rounds by how many drafted tokens they accepted; 0 means that only the bonus token was gained."""
    counts = summarise(trace, row).acceptance_histogram
    if not counts:
        return empty("Accepted drafts per round", "No round yet.")
    rounds, gained = sum(counts), sum(counts[1:])
    drawn = figure(f"{gained} of {rounds} rounds accepted a draft", "drafted tokens accepted in a round", "rounds")
    drawn.add_bar(
        x=list(range(len(counts))),
        y=list(counts),
        marker={"color": [BASELINE, *[ACCEPTED] * (len(counts) - 1)], "line": {"width": 0}},
        text=[str(count) if count else "" for count in counts],
        textposition="outside",
        cliponaxis=False,
        customdata=[count / rounds for count in counts],
        hovertemplate="%{y} rounds (%{customdata:.0%}) accepted exactly %{x}<extra></extra>",
    )
    drawn.update_xaxes(dtick=1 if len(counts) <= 12 else None)
    drawn.update_layout(bargap=0.25, showlegend=False, margin_t=40)
    return drawn
