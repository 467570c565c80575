"""Sweep: one thing that differs between two runs, everything else held equal. Plain data: no gradio here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specviz.errors import BadInput
from specviz.registry import AUTO, Knob, knobs
from specviz.ui import choices
from specviz.ui.choices import KINDS, Choice, Key

TEMPERATURE = Knob("Temperature", minimum=0.0, maximum=2.0, name="temperature", type=float, default=0.0)


@dataclass(frozen=True)
class Axis:
    """What can differ: its key ("drafter", "temperature", "shape.nodes"), its label, the value it has, and values worth trying."""

    key: str
    label: str
    now: str
    values: tuple[str, ...]

    @property
    def pair(self) -> tuple[str, str]:
        """Two values to begin with: the one it has, and the last other one."""
        others = [value for value in self.values if value != self.now]
        return self.now, others[-1] if others else self.now


@dataclass(frozen=True)
class Setting:
    """A choice with its temperature and its knob values by (kind, name, knob)."""

    choice: Choice
    temperature: float
    knobs: Mapping[Key, Any]


def axes(choice: Choice) -> dict[str, Axis]:
    """Returns everything that can differ between two runs of this choice, by key."""
    labels = {"drafter": "Drafter", "shape": "Tree shape", "rule": "Acceptance rule"}
    found = [Axis(kind, labels[kind], str(choice.picked(kind)), choices.names(kind)) for kind in KINDS if choice.picked(kind)]
    found.append(Axis("temperature", "Temperature", "0", ("0", "1", "0.7")))
    for kind in KINDS:
        name = choice.picked(kind)
        own = knobs(choices.thing(kind, name)) if name else ()
        values = choices.defaults(kind, name, choice.drafter) if name else {}
        found += [
            Axis(f"{kind}.{knob.name}", f"{knob.label} ({name})", written(values[knob.name]), suggestions(knob, values[knob.name]))
            for knob in own
            if not knob.advanced
        ]
    return {axis.key: axis for axis in found}


def written(value: Any) -> str:
    """Returns a knob's value as a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def suggestions(knob: Knob, default: Any) -> tuple[str, ...]:
    """Returns values worth trying: the choices or offers, or the default with half and double of it, kept in range, and AUTO where it fits."""
    if knob.choices is not None:
        return tuple(map(str, knob.choices))
    if knob.offers is not None:
        return tuple(dict.fromkeys([str(default), *map(str, knob.offers())]))
    if knob.type is bool:
        return ("yes", "no")
    if knob.type not in (int, float):
        return (str(default),)
    tried = {knob.type(default * factor) for factor in (0.5, 1, 2)}
    kept = sorted(value for value in tried if (knob.minimum is None or value >= knob.minimum) and (knob.maximum is None or value <= knob.maximum))
    return (*map(written, kept), *([AUTO] if knob.auto else []))


def vary(setting: Setting, key: str, value: str) -> Setting:
    """Returns the setting with one thing changed. Raises BadInput naming the value and what was expected."""
    if key not in axes(setting.choice):
        raise BadInput(f"{key!r} cannot differ here. There are: {', '.join(axes(setting.choice))}.")
    if key == "temperature":
        return _settled(replace(setting, temperature=TEMPERATURE.parse(value)))
    kind, _, knob_name = key.partition(".")
    if not knob_name:
        choices.thing(kind, value)  # refuses a name that does not exist
        return _with(setting, kind, value)
    name = str(setting.choice.picked(kind))
    knob = next(knob for knob in knobs(choices.thing(kind, name)) if knob.name == knob_name)
    return replace(setting, knobs={**setting.knobs, (kind, name, knob_name): knob.parse(value)})


def _with(setting: Setting, kind: str, name: str) -> Setting:
    """Another drafter, shape or rule; a drafter that changes the shape brings the knobs that suit it."""
    choice, values = setting.choice, dict(setting.knobs)
    if kind == "drafter":
        takes = choices.takes_shape(name)
        shape = (choice.shape or choices.default_shape(name)) if takes else None
        choice = replace(choice, drafter=name, shape=shape)
        if shape is not None and setting.choice.shape is None:
            values |= {("shape", shape, knob): value for knob, value in choices.begins_with("shape", shape, name).items()}
    elif kind == "shape":
        choice = replace(choice, shape=name)
    else:
        choice = replace(choice, rule=name)
    return _settled(replace(setting, choice=choice, knobs=values))


def _settled(setting: Setting) -> Setting:
    choice = setting.choice
    return replace(setting, choice=choices.settle(choice.drafter, choice.shape, choice.rule, setting.temperature))
