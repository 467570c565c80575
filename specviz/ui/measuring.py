"""The button that measures this machine: shown where a cost chart has no curve to draw, because nothing was measured yet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import gradio as gr

from specviz.errors import SpecvizError
from specviz.plots.cost import needs_profile
from specviz.trace import Trace
from specviz.ui import notes
from specviz.ui.app import MODEL_WORK, App
from specviz.ui.charts import Charts

log = logging.getLogger(__name__)
PROBLEMS = (SpecvizError, RuntimeError, ValueError, OSError)


class Measuring:
    """Button and line of text; after a measurement the cost chart of the session's run is drawn again."""

    def __init__(self, app: App, trace: Trace | None, prefix: str) -> None:
        self.app, self.trace = app, trace
        with gr.Row(elem_classes="app-files"):
            self.button = gr.Button(
                "Measure what other tree sizes cost here", size="sm", min_width=0, visible=bool(trace and needs_profile(trace)), elem_id=f"{prefix}-measure",
                elem_classes="app-quiet",
            )  # fmt: skip
            self.message = gr.HTML("", elem_id=f"{prefix}-measured")

    def wire(self, kept: gr.State, charts: Charts) -> None:
        """Waits its turn behind the runs, so that nothing else is measured with it."""
        self.charts = charts
        self.button.click(
            self.measure, kept, [self.message, self.button, charts.places["cost"]], show_progress="hidden", concurrency_id=MODEL_WORK, concurrency_limit=1,
            api_visibility="private",
        )  # fmt: skip

    def measure(self, trace: Trace | None) -> Iterator[dict[Any, Any]]:
        """Measures forwards on this machine, says so meanwhile, and draws the chart again."""
        if not self.app.engine.can_measure:
            yield {self.message: notes.message("The model is not ready yet. Try again when the header says so.", "error")}
            return
        yield {self.message: notes.message("Measuring what a forward costs by its number of nodes. This takes some seconds.", "busy")}
        try:
            profile = self.app.engine.measure()
        except PROBLEMS as problem:
            log.error("measuring failed", exc_info=problem)
            yield {self.message: notes.message(str(problem) or type(problem).__name__, "error")}
            return
        said = f"Measured: a forward of 16 nodes takes {profile.forward_ms(16) / profile.forward_ms(1):.2f} times as long as one of a single node here."
        yield {self.message: notes.message(said), **self.after(trace)}

    def after(self, trace: Trace | None) -> dict[Any, Any]:
        """Returns the chart of the run on screen, and the button where its machine is still another one."""
        if trace is None:
            return {self.button: gr.update(visible=False)}
        return {self.charts.places["cost"]: self.charts.figure("cost", trace), **self.offer(trace)}

    def offer(self, trace: Trace) -> dict[Any, Any]:
        """Returns the button: visible while the run's machine was not measured."""
        return {self.button: gr.update(visible=needs_profile(trace))}
