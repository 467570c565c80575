"""Charts: every plot that is discovered gets a place; drawn when a run ends, and in turn while it goes on."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz import plots
from specviz.registry import discover
from specviz.trace import Trace

ORDER = ("race", "race_over_time", "histogram", "depth", "time_split", "cost")  # plots named here come first


def found_plots() -> dict[str, Any]:
    """Returns every discovered plot, in the order of the page."""
    found = discover(plots)
    return {name: found[name] for name in sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))}


class Charts:
    """One gr.Plot per discovered plot, in a grid."""

    def __init__(self, trace: Trace | None, prefix: str) -> None:
        self.places: dict[str, gr.Plot] = {}
        self.turn = 0
        with gr.Row(elem_classes="app-charts"):
            for name, plot in found_plots().items():
                value = plot(trace) if trace is not None else None
                self.places[name] = gr.Plot(
                    value, show_label=False, container=False, min_width=260, elem_id=f"{prefix}-plot-{name}", elem_classes="app-card app-chart"
                )

    def draw(self, trace: Trace) -> dict[Any, Any]:
        """Returns a figure of the trace for every place."""
        return {place: found_plots()[name](trace) for name, place in self.places.items()}

    def figure(self, name: str, trace: Trace) -> Any:
        """Returns one figure of the trace."""
        return found_plots()[name](trace)

    def draw_one(self, trace: Trace) -> dict[Any, Any]:
        """Returns one figure, the places taking turns: drawing all of them at once would hold up a browser that shares its CPU with the model."""
        self.turn = (self.turn + 1) % len(self.places)
        name = list(self.places)[self.turn]
        return {self.places[name]: found_plots()[name](trace)}
