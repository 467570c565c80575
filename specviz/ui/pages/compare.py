from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from specviz.errors import SpecvizError
from specviz.trace import Trace
from specviz.ui import choices, notes, sweep
from specviz.ui.app import App
from specviz.ui.choices import Choice
from specviz.ui.controls import QUIET, Method, Prompt, Values
from specviz.ui.engine import Ask
from specviz.ui.run_buttons import Flow, RunButtons
from specviz.ui.side_by_side import COLUMNS, PairStep, play_pair, table
from specviz.ui.view import tail, whole
from specviz.ui.widgets.player import Player, as_text

PREFIX = "compare"
STATE_KEPT = 3600  # seconds
BREATH = 0.02  # seconds after each picture, as on the live page
RECORDED = "Two recorded runs. Press Run both to compare on your own prompt."


def compare(app: App) -> ComparePage:
    """Two runs of the same prompt and seed that differ in one thing, beside plain decoding."""
    page = ComparePage(app)
    page.place()
    page.wire()
    return page


class ComparePage:
    """The compare page: its components, and the handlers as methods."""

    def __init__(self, app: App) -> None:
        self.app = app

    def place(self) -> None:
        self.kept = gr.State(None, time_to_live=STATE_KEPT)  # the session's own two runs, as they grow, and what to call them
        first = choices.first_choice(self.app.target_name)
        with gr.Row(elem_classes="app-page"):
            with gr.Column(elem_classes="app-ask app-card", min_width=0):
                self._place_prompt(first)
            with gr.Column(elem_classes="app-method app-card", min_width=0):
                self._place_method()
            with gr.Column(elem_classes="app-main", min_width=0):
                traces = self.app.first_pair()
                names = [notes.method(trace) for trace in traces] if traces else list(COLUMNS)
                self.table = gr.HTML(
                    notes.origin(RECORDED) + table(traces, [f"{letter}: {name}" for letter, name in zip(COLUMNS, names, strict=True)])
                    if traces
                    else notes.message("Choose what differs and press Run: both runs then play here, side by side."),
                    elem_id=f"{PREFIX}-table",
                )
                with gr.Row(elem_classes="app-pair"):
                    self.titles: list[gr.HTML] = []
                    self.players: list[Player] = []
                    for place, letter in enumerate(COLUMNS):
                        with gr.Column(min_width=0, scale=1):
                            self.titles.append(gr.HTML(notes.column(letter, f"{names[place]}, recorded" if traces else "")))
                            self.players.append(
                                Player(
                                    as_text(whole(traces[place])) if traces else None, compact=True, group=PREFIX, elem_id=f"{PREFIX}-player-{letter.lower()}"
                                )
                            )

    def _place_prompt(self, first: Choice) -> None:
        self.prompt = Prompt(PREFIX)
        axes = sweep.axes(first)
        axis = next(iter(axes.values()))
        self.axis = gr.Dropdown(
            [(a.label, a.key) for a in axes.values()], value=axis.key, label="What differs", interactive=True, filterable=False, elem_id=f"{PREFIX}-axis"
        )
        self.values = [
            gr.Dropdown(list(axis.values), value=value, label=letter, allow_custom_value=True, interactive=True, elem_id=f"{PREFIX}-{letter.lower()}")
            for letter, value in zip(COLUMNS, axis.pair, strict=True)
        ]
        self.buttons = RunButtons(self.app, PREFIX, "Run both")

    def _place_method(self) -> None:
        gr.HTML('<h3 class="app-head">Everything else is equal</h3>')
        self.method = Method(self.app.target_name, PREFIX)
        self.prompt.add_length(self.app.settings)
        with gr.Accordion("Advanced", open=False, elem_classes="app-fold"):
            self.method.add_advanced()

    def wire(self) -> None:
        self.method.wire()
        picks = list(self.method.picks.values())
        for pick in picks:
            pick.change(self.offer_axes, [*picks, self.axis], [self.axis, *self.values], **QUIET)
        self.axis.input(self.offer_values, [*picks, self.axis], self.values, **QUIET)
        inputs = {*self.prompt.inputs, *self.method.inputs, self.axis, *self.values}
        screen = [self.table, *self.titles, *self.players]
        self.buttons.wire(self.prompt.text, Flow(self.decode, inputs, [*self.titles, *self.players, self.kept], self.finish, self.kept, screen))

    def offer_axes(self, drafter: str, shape: str | None, rule: str, key: str) -> list[Any]:
        """Another method has other knobs: offers what can differ, and keeps what was chosen where it still exists."""
        axes = sweep.axes(choices.settle(drafter, shape, rule, 0.0))
        axis = axes.get(key) or next(iter(axes.values()))
        return [gr.update(choices=[(a.label, a.key) for a in axes.values()], value=axis.key), *self._offered(axis)]

    def offer_values(self, drafter: str, shape: str | None, rule: str, key: str) -> list[Any]:
        """Offers two values of what differs."""
        axes = sweep.axes(choices.settle(drafter, shape, rule, 0.0))
        return self._offered(axes.get(key) or next(iter(axes.values())))

    def _offered(self, axis: sweep.Axis) -> list[Any]:
        return [gr.update(choices=list(axis.values), value=value) for value in axis.pair]

    def read(self, values: Values) -> list[Ask]:
        """Returns the two runs. Raises BadInput for a value that cannot be used."""
        base = sweep.Setting(self.method.choice(values), choices.number("temperature", values[self.method.temperature], float), self.method.knob_values(values))
        settings = [sweep.vary(base, str(values[self.axis]), str(values[part])) for part in self.values]
        return [
            choices.make_ask(
                one.choice, one.knobs, prompt=str(values[self.prompt.text] or ""),
                sampling=choices.make_sampling(one.temperature, values[self.method.top_p], values[self.method.top_k], values[self.prompt.seed]),
                max_new_tokens=choices.number("max_new_tokens", values[self.prompt.length], int),
            )
            for one in settings
        ]  # fmt: skip

    def decode(self, values: Values, request: gr.Request) -> Iterator[dict[Any, Any]]:
        """Runs A, B and plain decoding in turn and yields what changed, some times a second."""
        try:
            asks = self.read(values)
        except SpecvizError as problem:
            yield {self.buttons.message: notes.message(str(problem), "error"), self.kept: None}
            return
        axis = sweep.axes(self.method.choice(values))[str(values[self.axis])]
        labels = [f"{axis.label}: {values[part]}" for part in self.values]
        for moment in play_pair(self.app.engine, asks, self.buttons.stopped(request)):
            yield self.show(moment, labels)
            if moment.step.stage == "drafting":
                time.sleep(BREATH)

    def show(self, moment: PairStep, labels: list[str]) -> dict[Any, Any]:
        """Returns the updates of one moment: the newest rounds of the column that runs."""
        step, column = moment.step, moment.column
        prefix = "" if step.last or step.stage in ("waiting", "warming") else f"{COLUMNS[column]}: "
        updates: dict[Any, Any] = {self.buttons.message: notes.of_step(replace(step, message=prefix + step.message))}
        trace = moment.traces[column]
        if step.stage == "drafting" and trace is not None:
            updates |= {self.players[column]: tail(trace, last=step.newest)}
            if len(trace.rounds()) == 1:
                updates |= {self.titles[column]: notes.column(COLUMNS[column], labels[column])}
        return updates | {self.kept: (moment.traces, labels) if any(moment.traces) else None}

    def finish(self, kept: tuple[tuple[Trace | None, Trace | None], list[str]] | None) -> dict[Any, Any]:
        """Draws both runs and their numbers; without one, the screen keeps what it showed."""
        if kept is None:
            return gr.skip()
        traces, labels = kept
        updates: dict[Any, Any] = {self.table: table(traces, [f"{letter}: {label}" for letter, label in zip(COLUMNS, labels, strict=True)])}
        for place, trace in enumerate(traces):
            if trace is not None:
                updates |= {self.players[place]: whole(trace), self.titles[place]: notes.column(COLUMNS[place], labels[place])}
        return updates
