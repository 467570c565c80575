"""What every figure shares: colours with one meaning each, a quiet layout that reads on light and dark pages, the honest empty figure."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

# Okabe-Ito, one colour one meaning, the same as in the text and the tree
ACCEPTED, REJECTED, BONUS, DRAFT, BASELINE = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#8A8F98"
TEXT, GRID = "#767C85", "rgba(128,134,145,0.22)"  # a mid tone, legible on white and on near-black
HEIGHT = 260
LEGEND_TOP = 30  # pixels from the top of a figure: below its title, however many lines the legend takes


def figure(title: str, x: str, y: str) -> go.Figure:
    """Returns a figure without data: a title in one short sentence, named axes, transparent background, fixed height."""
    axis: dict[str, Any] = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "automargin": True, "fixedrange": True}
    return go.Figure(
        layout={
            "template": "none",
            "title": {"text": title, "font": {"size": 14}, "x": 0.0, "xref": "paper", "y": 0.97, "yanchor": "top"},
            "font": {"color": TEXT, "size": 12, "family": "Inter, system-ui, 'DejaVu Sans', sans-serif"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "height": HEIGHT,
            "margin": {"l": 44, "r": 12, "t": 58, "b": 40},
            "xaxis": {**axis, "title": {"text": x, "standoff": 6}, "showgrid": False},
            "yaxis": {**axis, "title": {"text": y, "standoff": 6}, "rangemode": "tozero"},
            "legend": {
                "orientation": "h",
                "x": 0.0,
                "y": 1.0 - LEGEND_TOP / HEIGHT,
                "yref": "container",
                "yanchor": "top",
                "bgcolor": "rgba(0,0,0,0)",
                "font": {"size": 11},
            },
            "hovermode": "closest",
            "hoverlabel": {"font": {"size": 12}},
        }
    )


def empty(title: str, reason: str) -> go.Figure:
    """Returns a figure that says in its middle why there is nothing to draw."""
    drawn = figure(title, "", "")
    drawn.update_xaxes(visible=False)
    drawn.update_yaxes(visible=False)
    drawn.add_annotation(text=reason, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font={"size": 13})
    return drawn
