from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from specviz.errors import SpecvizError
from specviz.trace import Trace
from specviz.ui import choices, notes
from specviz.ui.app import MODEL_WORK, App
from specviz.ui.charts import Charts, Pace
from specviz.ui.controls import QUIET, Method, Prompt, Values, read_ask
from specviz.ui.runs import Step, play
from specviz.ui.view import tail, whole
from specviz.ui.widgets.player import Player

PREFIX = "live"
DRAW_PROBLEMS = (SpecvizError, KeyError, TypeError, ValueError, IndexError, AttributeError)  # what an odd trace file can cause
RECORDED, LIVE, OPENED = "Recorded run", "This run", "Opened file"


def live(app: App) -> None:
    """Ask something and watch candidate trees grow, get verified and get accepted."""
    page = LivePage(app)
    page.place()
    page.wire()


class LivePage:
    """The live page: its components, and the handlers as methods. A trace lives in the handler that made it, never in the page."""

    def __init__(self, app: App) -> None:
        self.app = app

    def place(self) -> None:
        trace = self.app.first_trace()
        with gr.Row(elem_classes="sv-page"):
            with gr.Column(elem_classes="sv-aside sv-card", scale=0, min_width=280):
                self._place_controls()
            with gr.Column(elem_classes="sv-main", scale=1, min_width=0):
                self.facts = gr.HTML(notes.of_run(trace, RECORDED) if trace else "", elem_id=f"{PREFIX}-facts")
                self.player = Player(whole(trace) if trace else None, elem_id=f"{PREFIX}-player")
                self.speed = gr.HTML(notes.of_speed(trace) if trace else "", elem_id=f"{PREFIX}-speed")
                self.charts = Charts(trace, PREFIX)

    def _place_controls(self) -> None:
        first = choices.first_choice()
        self.prompt = Prompt(PREFIX)
        with gr.Row(elem_classes="sv-run"):
            self.run = gr.Button("Run", variant="primary", elem_id=f"{PREFIX}-run")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id=f"{PREFIX}-stop")
        self.message = gr.HTML("", elem_id=f"{PREFIX}-message")
        self.method = Method(first, PREFIX)
        self.prompt.add_length(self.app.settings)
        with gr.Accordion("Advanced", open=False, elem_classes="sv-fold"):
            self.method.add_advanced()
            self.plain = gr.Checkbox(
                True, label="Measure plain decoding too", info="Runs the same prompt and seed token by token afterwards, so that the speed-up is a measured one.",
                interactive=True, elem_id=f"{PREFIX}-plain",
            )  # fmt: skip
        with gr.Row(elem_classes="sv-files"):
            recorded = list(self.app.recorded())
            self.recorded = gr.Dropdown(recorded, value=recorded[0] if recorded else None, label="Recorded runs", interactive=True, filterable=False, elem_id=f"{PREFIX}-recorded", visible=bool(recorded))
            self.open = gr.UploadButton("Open a trace", file_types=[".jsonl", ".gz"], size="sm", elem_id=f"{PREFIX}-open", elem_classes="sv-quiet")
            self.download = gr.DownloadButton("Download trace", value=self._first_file(), size="sm", elem_id=f"{PREFIX}-download", elem_classes="sv-quiet")

    def _first_file(self) -> str | None:
        files = list(self.app.recorded().values())
        return str(files[0]) if files else None

    def wire(self) -> None:
        self.method.wire()
        inputs = {*self.prompt.inputs, *self.method.inputs, self.plain}
        buttons = [self.run, self.stop, self.message]
        screen = [*buttons, self.facts, self.player, self.speed, *self.charts.places.values(), self.download]
        armed = gr.on([self.run.click, self.prompt.text.submit], self.arm, None, buttons, **QUIET)
        decoded = armed.then(self.decode, inputs, screen, show_progress="hidden", concurrency_id=MODEL_WORK, concurrency_limit=1, api_visibility="private")
        decoded.then(self.rest, None, buttons[:2], **QUIET)
        self.stop.click(self.ask_stop, None, self.message, **QUIET)
        self.recorded.input(self.show_recorded, self.recorded, screen, **QUIET)
        self.open.upload(self.open_file, self.open, screen, **QUIET)

    def arm(self, request: gr.Request) -> dict[Any, Any]:
        """A run was asked for; it may have to wait for its turn."""
        self.app.stops.arm(self._session(request))
        return {self.run: gr.update(visible=False), self.stop: gr.update(visible=True, interactive=True), self.message: notes.message("Waiting for a turn.", "busy")}

    def rest(self) -> dict[Any, Any]:
        return {self.run: gr.update(visible=True), self.stop: gr.update(visible=False)}

    def ask_stop(self, request: gr.Request) -> str:
        self.app.stops.stop(self._session(request))
        return notes.message("Stopping after this round.", "busy")

    def _session(self, request: gr.Request) -> str:
        return f"{PREFIX}/{request.session_hash}"

    def decode(self, values: Values, request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Runs what the controls say and yields what changed on the screen, every round."""
        session, pace = self._session(request), Pace()
        try:
            ask = read_ask(self.prompt, self.method, values)
        except SpecvizError as problem:
            yield {self.message: notes.message(str(problem), "error")}
            return
        for step in play(self.app.engine, ask, plain=bool(values[self.plain]), stopped=lambda: self.app.stops.asked(session)):
            yield self.show(step, pace)

    def show(self, step: Step, pace: Pace) -> dict[Any, Any]:
        """Returns the updates of one step: only the newest rounds travel while a run goes on."""
        updates: dict[Any, Any] = {self.message: notes.of_step(step)}
        if step.last:
            updates |= self.rest()
        if step.trace is None:
            return updates
        if step.last:
            return updates | self.screen(step.trace, LIVE) | {self.download: gr.update(value=str(self.app.downloads.save(step.trace)))}
        if step.stage == "drafting":
            updates |= {self.player: tail(step.trace)}
            if len(step.trace.rounds()) == 1:
                updates |= {self.facts: notes.of_run(step.trace, LIVE), self.speed: ""}
            if pace.due():
                updates |= self.charts.draw(step.trace)
        return updates

    def screen(self, trace: Trace, origin: str) -> dict[Any, Any]:
        """Returns a whole trace for every part of the page."""
        return {self.player: whole(trace), self.facts: notes.of_run(trace, origin), self.speed: notes.of_speed(trace), **self.charts.draw(trace)}

    def show_recorded(self, name: str) -> dict[Any, Any]:
        """Shows a run that came with the app."""
        path = self.app.recorded().get(name)
        return self._load(str(path) if path else name, RECORDED)

    def open_file(self, path: str) -> dict[Any, Any]:
        """Shows a trace file; one that cannot be read leaves the screen as it was and says why."""
        return self._load(path, OPENED)

    def _load(self, path: str, origin: str) -> dict[Any, Any]:
        try:
            trace = Trace.load(path, limit=self.app.settings.upload_mb * 2**20)
            return {self.message: "", self.download: gr.update(value=path), **self.screen(trace, origin)}
        except DRAW_PROBLEMS as problem:
            text = str(problem) if isinstance(problem, SpecvizError) else f"This trace could be read but not drawn: {problem!r}. Was it edited by hand?"
            gr.Warning(text)
            return {self.message: notes.message(text, "error")}
