"""Controls: components made from the registries. A knob is declared once, in the signature of what it belongs to."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.registry import AUTO, Knob
from specviz.sampling import Sampling
from specviz.settings import Settings
from specviz.ui import choices
from specviz.ui.choices import KINDS, Choice
from specviz.ui.engine import Ask
from specviz.ui.presets import PRESETS

SEEDS = 2**31 - 1
AUTO_INFO = "Nodes, depth, children and when to stop, as they pay on this machine: from the head's report and from what forwards cost here (measured once)."
LENGTH = 96  # new tokens asked for at first
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
Values = Mapping[Component, Any]


def component(knob: Knob, value: Any, elem_id: str) -> Component:
    """Returns the control of a knob: a menu, a tick box, a slider where both ends are known, else a field."""
    common: dict[str, Any] = {"value": value, "label": knob.label, "info": knob.help or None, "interactive": True, "elem_id": elem_id}
    if knob.choices is not None:
        return gr.Dropdown(choices=list(knob.choices), **common)
    if knob.offers is not None:
        return gr.Dropdown(choices=list(knob.offers()), allow_custom_value=True, **common)
    if knob.type is bool:
        return gr.Checkbox(**common)
    if knob.type in (int, float) and knob.minimum is not None and knob.maximum is not None:
        step = knob.step or (1 if knob.type is int else 0.01)
        return gr.Slider(knob.minimum, knob.maximum, step=step, buttons=[], **common)
    if knob.type in (int, float):
        return gr.Number(precision=0 if knob.type is int else None, **common)
    return gr.Textbox(max_lines=1, **common)


class Prompt:
    """The prompt with its presets; `add_length` places length and seed, which stand further down."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.text = gr.Textbox(PRESETS[0].prompt, label="Prompt", lines=4, max_lines=8, interactive=True, elem_id=f"{prefix}-prompt", elem_classes="app-prompt")
        with gr.Row(elem_classes="app-presets"):
            for preset in PRESETS:
                button = gr.Button(preset.name, size="sm", min_width=0, elem_classes="app-chip")
                button.click(lambda text=preset.prompt: text, None, self.text, **QUIET)

    def add_length(self, settings: Settings) -> None:
        most = settings.max_new_tokens
        self.length = gr.Slider(1, most, min(LENGTH, most), step=1, label="New tokens", interactive=True, buttons=[], elem_id=f"{self.prefix}-length")
        with gr.Row(elem_classes="app-seed"):
            self.seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=SEEDS, interactive=True, min_width=80, elem_id=f"{self.prefix}-seed")
            shuffle = gr.Button("New seed", size="sm", min_width=0, elem_classes="app-quiet", elem_id=f"{self.prefix}-new-seed")
        shuffle.click(lambda: random.randrange(SEEDS), None, self.seed, **QUIET)

    @property
    def inputs(self) -> set[Component]:
        return {self.text, self.length, self.seed}


class Method:
    """Drafter, tree shape, acceptance rule and temperature, with the knobs of what is chosen and no others."""

    def __init__(self, target: str, prefix: str) -> None:
        self.prefix, self.target, self.first = prefix, target, choices.first_choice(target)
        first = self.first
        self.knobs: dict[choices.Key, Component] = {}
        self.groups: dict[tuple[str, str, bool], gr.Column] = {}
        self.picks: dict[str, gr.Dropdown] = {}
        self.autos: dict[tuple[str, str], gr.Checkbox] = {}  # one tick stands for all knobs that this machine can decide
        self.by_hand: dict[tuple[str, str], gr.Column] = {}  # those knobs, shown while it is off
        labels = {"drafter": "Drafter", "shape": "Tree shape", "rule": "Acceptance rule"}
        for kind in KINDS:
            self.picks[kind] = gr.Dropdown(
                list(choices.names(kind)), value=first.picked(kind), label=labels[kind], info=choices.describe(kind, first.picked(kind), target),
                visible=first.picked(kind) is not None, interactive=True, filterable=False, elem_id=f"{prefix}-{kind}",
            )  # fmt: skip
            if kind == "drafter":
                learned = choices.is_learned(first.drafter)
                self.report = gr.Button("How good is this head?", size="sm", visible=learned, min_width=0, elem_id=f"{prefix}-report", elem_classes="app-link")
            self._add_groups(kind, advanced=False)
        self.temperature = gr.Slider(
            0,
            2,
            0,
            step=0.05,
            label="Temperature",
            info="0 takes the most likely token every time.",
            interactive=True,
            buttons=[],
            elem_id=f"{prefix}-temperature",
        )
        self.note = gr.HTML("", elem_id=f"{prefix}-note", elem_classes="app-note", visible=False)

    def add_advanced(self) -> None:
        """Places what most people leave alone: top-p, top-k and the advanced knobs."""
        self.top_p = gr.Slider(
            0.05,
            1,
            1,
            step=0.01,
            label="Top-p",
            info="Keeps the most likely tokens up to this mass. 1 = off.",
            interactive=True,
            buttons=[],
            elem_id=f"{self.prefix}-top-p",
        )
        self.top_k = gr.Slider(
            0, 200, 0, step=1, label="Top-k", info="Keeps this many most likely tokens. 0 = off.", interactive=True, buttons=[], elem_id=f"{self.prefix}-top-k"
        )
        for kind in KINDS:
            self._add_groups(kind, advanced=True)

    def _add_groups(self, kind: str, *, advanced: bool) -> None:
        for (of, name), found in choices.all_knobs().items():
            shown = [knob for knob in found if knob.advanced == advanced]
            if of != kind or not shown:
                continue
            values = choices.defaults(kind, name, self.first.drafter)
            with gr.Column(visible=self.first.picked(kind) == name, elem_classes="app-knobs", min_width=0) as self.groups[kind, name, advanced]:
                if any(knob.auto for knob in shown):
                    self._add_auto(kind, name, [knob for knob in shown if knob.auto], values)
                for knob in shown:
                    if not knob.auto:
                        self.knobs[kind, name, knob.name] = component(knob, values[knob.name], f"{self.prefix}-{kind}-{name}-{knob.name}")

    def _add_auto(self, kind: str, name: str, found: list[Knob], values: Mapping[str, Any]) -> None:
        on = choices.is_auto(kind, name, self.first.drafter, self.target)
        self.autos[kind, name] = gr.Checkbox(on, label="Automatic size", info=AUTO_INFO, interactive=True, elem_id=f"{self.prefix}-{kind}-{name}-auto")
        with gr.Column(visible=not on, elem_classes="app-knobs", min_width=0) as self.by_hand[kind, name]:
            for knob in found:
                self.knobs[kind, name, knob.name] = component(knob, values[knob.name], f"{self.prefix}-{kind}-{name}-{knob.name}")

    def wire(self) -> None:
        """Shows what applies after every change. Call once all parts are placed."""
        self.picks["drafter"].input(self.new_drafter, self.chosen, self.shown, **QUIET)
        for changed in (self.picks["shape"], self.picks["rule"]):
            changed.input(self.settled, self.chosen, self.shown, **QUIET)
        self.temperature.release(self.settled, self.chosen, self.shown, **QUIET)
        for key, tick in self.autos.items():
            tick.input(lambda on: gr.update(visible=not on), tick, self.by_hand[key], **QUIET)

    @property
    def chosen(self) -> list[Component]:
        """What `settled` and `new_drafter` read, in the order of their parameters."""
        return [*self.picks.values(), self.temperature]

    @property
    def shown(self) -> list[Any]:
        """What they change."""
        return [*self.picks.values(), self.report, self.note, *self.groups.values(), *self.knobs.values(), *self.autos.values(), *self.by_hand.values()]

    def new_drafter(self, drafter: str, shape: str | None, rule: str, temperature: float) -> dict[Any, Any]:
        """Another drafter brings its own default shape, with the knobs that suit it."""
        shape = choices.default_shape(drafter)
        updates = self.settled(drafter, shape, rule, temperature)
        if shape is not None:
            values = choices.defaults("shape", shape, drafter)
            updates |= {part: gr.update(value=values[knob]) for (kind, name, knob), part in self.knobs.items() if (kind, name) == ("shape", shape)}
            if ("shape", shape) in self.autos:
                on = choices.is_auto("shape", shape, drafter, self.target)
                updates |= {self.autos["shape", shape]: gr.update(value=on), self.by_hand["shape", shape]: gr.update(visible=not on)}
        return updates

    def settled(self, drafter: str, shape: str | None, rule: str, temperature: float) -> dict[Any, Any]:
        choice = choices.settle(drafter, shape, rule, temperature)
        updates: dict[Any, Any] = {
            pick: gr.update(value=choice.picked(kind), info=choices.describe(kind, choice.picked(kind), self.target), visible=choice.picked(kind) is not None)
            for kind, pick in self.picks.items()
        }
        updates |= {group: gr.update(visible=choice.picked(kind) == name) for (kind, name, _), group in self.groups.items()}
        updates |= self._offered(choice) | {self.report: gr.update(visible=choices.is_learned(choice.drafter))}
        return updates | {self.note: gr.update(value=choice.note, visible=bool(choice.note))}

    def _offered(self, choice: Choice) -> dict[Any, Any]:
        """What is at hand is looked up again whenever it comes into view: a file may have been added since the page was made."""
        shown = [(kind, name, knob) for (kind, name), found in choices.all_knobs().items() if choice.picked(kind) == name for knob in found]
        return {self.knobs[kind, name, knob.name]: gr.update(choices=list(knob.offers())) for kind, name, knob in shown if knob.offers is not None}

    @property
    def inputs(self) -> set[Component]:
        return {*self.picks.values(), *self.knobs.values(), *self.autos.values(), self.temperature, self.top_p, self.top_k}

    def choice(self, values: Values) -> Choice:
        """Returns what is chosen, made to fit together."""
        drafter, shape, rule = (values[pick] for pick in self.picks.values())
        return choices.settle(drafter, shape, rule, choices.number("temperature", values[self.temperature], float))

    def sampling(self, values: Values, seed: Any) -> Sampling:
        return choices.make_sampling(values[self.temperature], values[self.top_p], values[self.top_k], seed)

    def knob_values(self, values: Values) -> dict[choices.Key, Any]:
        """Returns every knob's value; AUTO for those that a tick leaves to this machine."""
        left = {(kind, name) for (kind, name), tick in self.autos.items() if values.get(tick)}
        auto = {(kind, name, knob.name) for (kind, name), found in choices.all_knobs().items() if (kind, name) in left for knob in found if knob.auto}
        return {key: AUTO if key in auto else values[part] for key, part in self.knobs.items()}


def read_ask(prompt: Prompt, method: Method, values: Values) -> Ask:
    """Returns the run that the controls describe. Raises BadInput for a value that cannot be used."""
    return choices.make_ask(
        method.choice(values), method.knob_values(values), prompt=str(values[prompt.text] or ""),
        sampling=method.sampling(values, values[prompt.seed]), max_new_tokens=choices.number("max_new_tokens", values[prompt.length], int),
    )  # fmt: skip
