"""Charts: every plot that is discovered gets a place; drawn when a run ends and at most twice a second while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gradio as gr

from specviz import plots
from specviz.registry import discover
from specviz.trace import Trace

ORDER = ("race", "race_over_time", "histogram", "depth", "time_split")  # plots named here come first
REDRAW = 0.5  # least seconds between two drawings during a run


def found_plots() -> dict[str, Any]:
    """Returns every discovered plot, in the order of the page."""
    found = discover(plots)
    return {name: found[name] for name in sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))}


class Charts:
    """One gr.Plot per discovered plot, in a grid."""

    def __init__(self, trace: Trace | None, prefix: str) -> None:
        self.places: dict[str, gr.Plot] = {}
        with gr.Row(elem_classes="app-charts"):
            for name, plot in found_plots().items():
                value = plot(trace) if trace is not None else None
                self.places[name] = gr.Plot(
                    value, show_label=False, container=False, min_width=260, elem_id=f"{prefix}-plot-{name}", elem_classes="app-card app-chart"
                )

    def draw(self, trace: Trace) -> dict[Any, Any]:
        """Returns a figure of the trace for every place."""
        return {place: discover(plots)[name](trace) for name, place in self.places.items()}


class Pace:
    """Lets something happen at most once every `seconds`."""

    def __init__(self, seconds: float = REDRAW, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.next = clock() + seconds

    def due(self) -> bool:
        """True when enough time has passed since it last was."""
        now = self.clock()
        if now < self.next:
            return False
        self.next = now + self.seconds
        return True
