from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from specviz.errors import SpecvizError
from specviz.trace import Trace
from specviz.ui import notes
from specviz.ui.app import App
from specviz.ui.charts import Charts
from specviz.ui.controls import QUIET, Method, Prompt, Values, read_ask
from specviz.ui.measuring import Measuring
from specviz.ui.run_buttons import Flow, RunButtons
from specviz.ui.runs import Step, play
from specviz.ui.view import tail, whole
from specviz.ui.widgets.player import Player, as_text

PREFIX = "live"
STATE_KEPT = 3600  # seconds
BREATH = 0.02  # seconds after each picture: sending and drawing it should not take the processor from the next one, which is timed
ODD_TRACES = (KeyError, TypeError, ValueError, IndexError, AttributeError)  # what drawing a trace that was edited can raise
RECORDED, LIVE, OPENED = "A recorded run. Press Run to decode your own prompt.", "Your run.", "Opened file."
NONE_RECORDED = ("Recorded runs", "")  # what the picker shows while the run on screen is none of them


def live(app: App) -> LivePage:
    """Ask something and watch candidate trees grow, get verified and get accepted."""
    page = LivePage(app)
    page.place()
    page.wire()
    return page


class LivePage:
    """The live page: its components, and the handlers as methods. Traces live in the session's state, never in the page."""

    def __init__(self, app: App) -> None:
        self.app = app

    def place(self) -> None:
        self.kept = gr.State(None, time_to_live=STATE_KEPT)  # the session's run, as it grows; None when the last click on Run gave none
        trace = self.app.first_trace()
        with gr.Row(elem_classes="app-page"):
            with gr.Column(elem_classes="app-ask app-card", min_width=0):
                self._place_prompt()
            with gr.Column(elem_classes="app-main", min_width=0):
                self._place_files(trace)
                self.player = Player(as_text(whole(trace)) if trace else None, elem_id=f"{PREFIX}-player")
                self.speed = gr.HTML(notes.of_speed(trace) if trace else "", elem_id=f"{PREFIX}-speed")
                self.charts = Charts(trace, PREFIX)
                self.measuring = Measuring(self.app, trace, PREFIX)
            with gr.Column(elem_classes="app-method app-card", min_width=0):
                self._place_method()

    def _place_prompt(self) -> None:
        self.prompt = Prompt(PREFIX)
        self.buttons = RunButtons(self.app, PREFIX, "Run")

    def _place_method(self) -> None:
        self.method = Method(self.app.target_name, PREFIX)
        self.prompt.add_length(self.app.settings)
        with gr.Accordion("Advanced", open=False, elem_classes="app-fold"):
            self.method.add_advanced()
            self.plain = gr.Checkbox(
                True, label="Measure plain decoding too", info="Runs the same prompt and seed token by token afterwards, so that the speed-up is a measured one.",
                interactive=True, elem_id=f"{PREFIX}-plain",
            )  # fmt: skip

    def _place_files(self, trace: Trace | None) -> None:
        recorded = list(self.app.recorded())
        with gr.Row(elem_classes="app-files"):
            self.origin = gr.HTML(notes.of_origin(RECORDED, trace) if trace else "", elem_id=f"{PREFIX}-origin")
            self.recorded = gr.Dropdown(
                [NONE_RECORDED, *recorded], value=recorded[0] if recorded else None, label="Recorded runs", show_label=False, container=False, interactive=True,
                filterable=False, min_width=150, visible=bool(recorded), elem_id=f"{PREFIX}-recorded",
            )  # fmt: skip
            self.open = gr.UploadButton(
                "Open a trace", file_types=[".jsonl", ".gz"], size="sm", min_width=0, elem_id=f"{PREFIX}-open", elem_classes="app-quiet"
            )
            self.download = gr.DownloadButton(
                "Download", value=self._first_file(), size="sm", min_width=0, elem_id=f"{PREFIX}-download", elem_classes="app-quiet"
            )
        self.notice = gr.HTML("", elem_id=f"{PREFIX}-notice")

    def _first_file(self) -> str | None:
        files = list(self.app.recorded().values())
        return str(files[0]) if files else None

    def wire(self) -> None:
        self.method.wire()
        inputs = {*self.prompt.inputs, *self.method.inputs, self.plain}
        screen = [self.notice, self.origin, self.recorded, self.player, self.speed, self.download, self.measuring.button, *self.charts.places.values()]
        self.measuring.wire(self.kept, self.charts)
        self.buttons.wire(self.prompt.text, Flow(self.decode, inputs, [self.player, self.kept], self.finish, self.kept, screen))
        self.buttons.beat.tick(self.keep_up, self.kept, [self.origin, self.speed, *self.charts.places.values()], **QUIET)
        self.recorded.input(self.show_recorded, self.recorded, screen, **QUIET)
        self.open.upload(self.open_file, self.open, screen, **QUIET)

    def decode(self, values: Values, request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Runs what the controls say and yields what changed, some times a second."""
        try:
            ask = read_ask(self.prompt, self.method, values)
        except SpecvizError as problem:
            yield {self.buttons.message: notes.message(str(problem), "error"), self.kept: None}
            return
        for step in play(self.app.engine, ask, plain=bool(values[self.plain]), stopped=self.buttons.stopped(request)):
            yield self.show(step)
            if step.stage == "drafting":
                time.sleep(BREATH)

    def show(self, step: Step) -> dict[Any, Any]:
        """Returns the updates of one step: only the newest rounds travel while a run goes on."""
        updates: dict[Any, Any] = {self.buttons.message: notes.of_step(step), self.kept: step.trace}
        if step.trace is not None and step.stage == "drafting":
            updates |= {self.player: tail(step.trace, last=step.newest)}
        return updates

    def keep_up(self, trace: Trace | None) -> dict[Any, Any]:
        """Once a second of a run that goes on: says whose run it is, and draws one of the charts, which take turns."""
        if trace is None or trace.finished() is not None:
            return gr.skip()
        return {self.origin: notes.of_origin(LIVE, trace), self.speed: "", **self.charts.draw_one(trace)}

    def finish(self, trace: Trace | None) -> dict[Any, Any]:
        """Draws the whole run; without one, the screen keeps what it showed."""
        if trace is None:
            return gr.skip()
        return {self.notice: "", self.download: gr.update(value=str(self.app.downloads.save(trace))), **self.screen(trace, LIVE)}

    def screen(self, trace: Trace, origin: str) -> dict[Any, Any]:
        """Returns a whole trace for every part of the page."""
        return {
            self.player: whole(trace),
            self.origin: notes.of_origin(origin, trace),
            **({} if origin == RECORDED else {self.recorded: NONE_RECORDED[1]}),  # the picker names what is on screen, or nothing
            self.speed: notes.of_speed(trace),
            **self.charts.draw(trace),
            **self.measuring.offer(trace),
        }

    def show_recorded(self, name: str) -> dict[Any, Any]:
        """Shows a run that came with the app."""
        if name == NONE_RECORDED[1]:
            return gr.skip()
        path = self.app.recorded().get(name)
        if path is None:
            return self._refuse(f"There is no recorded run {name!r}.")
        return self._load(str(path), RECORDED)

    def open_file(self, path: str) -> dict[Any, Any]:
        """Shows a trace file; one that cannot be read leaves the screen as it was and says why."""
        return self._load(path, OPENED)

    def _load(self, path: str, origin: str) -> dict[Any, Any]:
        try:
            trace = Trace.load(path, limit=self.app.settings.upload_mb * 2**20)
            return {self.notice: "", self.download: gr.update(value=path), **self.screen(trace, origin)}
        except SpecvizError as problem:
            return self._refuse(str(problem))
        except ODD_TRACES as problem:
            return self._refuse(f"This trace could be read but not drawn: {problem!r}. Was it edited by hand?")

    def _refuse(self, text: str) -> dict[Any, Any]:
        return {self.notice: notes.message(text, "error")}
