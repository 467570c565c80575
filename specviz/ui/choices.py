"""What can be chosen, what fits together, and which knobs then apply. Plain data: no gradio here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specviz import acceptance, drafters, shapes
from specviz.acceptance.base import is_greedy_only, is_lossless
from specviz.analysis.head_report import has_report
from specviz.build import Spec
from specviz.errors import BadInput
from specviz.ready import best_head, ready_drafters
from specviz.registry import AUTO, Knob, discover, knobs, summary
from specviz.sampling import Sampling
from specviz.sources import DEFAULT_TARGET, models_dir
from specviz.ui.engine import Ask

PACKAGES = {"drafter": drafters, "shape": shapes, "rule": acceptance}
KINDS = tuple(PACKAGES)
Key = tuple[str, str, str]  # kind, name, knob
ANY_TEMPERATURE = "rejection"  # the rule that is lossless whatever the temperature
FALLBACK = "prompt_lookup"  # needs no checkpoint


@dataclass(frozen=True)
class Choice:
    """A drafter, shape (None: it has no tree to shape) and rule that fit together; `note` says what was changed to make them fit."""

    drafter: str
    shape: str | None
    rule: str
    note: str = ""

    def picked(self, kind: str) -> str | None:
        """The name that was chosen for "drafter", "shape" or "rule"."""
        return {"drafter": self.drafter, "shape": self.shape, "rule": self.rule}[kind]


def names(kind: str) -> tuple[str, ...]:
    """Returns what the registry of this kind holds."""
    return tuple(discover(PACKAGES[kind]))


def thing(kind: str, name: str) -> Any:
    """Returns the registered object. Raises BadInput naming what exists."""
    known = discover(PACKAGES[kind])
    if name not in known:
        raise BadInput(f"No {kind} {name!r}. There are: {', '.join(known)}.")
    return known[name]


def describe(kind: str, name: str | None, target: str = DEFAULT_TARGET) -> str:
    """Returns the one-line description for the page; a lossy rule says LOSSY in it."""
    if name is None or name not in discover(PACKAGES[kind]):
        return ""
    found = thing(kind, name)
    text = summary(found)
    if kind == "rule" and not is_lossless(found) and "LOSSY" not in text:
        text = f"LOSSY. {text}"
    if kind == "drafter" and not is_available(name, target):
        text += f" No checkpoint in models/{target}/{name} yet."
    return text


def takes_shape(drafter: str) -> bool:
    """True when the drafter's tree can be given a shape."""
    return "shape" in inspect.signature(thing("drafter", drafter).__init__).parameters


def is_learned(drafter: str) -> bool:
    """True when the drafter has a trained head, so that there can be a report on it."""
    return bool(getattr(thing("drafter", drafter), "learned", False))


def is_available(drafter: str, target: str = DEFAULT_TARGET) -> bool:
    """True when the drafter needs no checkpoint, or its checkpoint is in the models folder."""
    return drafter in ready_drafters(target)


def first_choice(target: str = DEFAULT_TARGET) -> Choice:
    """Returns what the page opens with: the trained head with the best report that can run here."""
    drafter = best_head(target) or FALLBACK
    return Choice(drafter, default_shape(drafter), "greedy")


def default_shape(drafter: str) -> str | None:
    """Returns the shape that a drafter takes when none is named; None when it has no tree to shape."""
    return thing("drafter", drafter).default_shape if takes_shape(drafter) else None


def defaults(kind: str, name: str, drafter: str | None = None) -> dict[str, Any]:
    """Returns knob defaults; a drafter may bring its own for the shape it is made for."""
    values = {knob.name: knob.default for knob in knobs(thing(kind, name))}
    if kind == "shape" and drafter is not None and name == default_shape(drafter):
        values |= thing("drafter", drafter).default_knobs
    return values


def is_auto(kind: str, name: str, drafter: str, target: str = DEFAULT_TARGET) -> bool:
    """True when the drafter's tree is sized by this machine unless a person says otherwise: its head has a report to size it by."""
    fits = kind == "shape" and name == default_shape(drafter) and any(knob.auto for knob in knobs(thing(kind, name)))
    return fits and is_learned(drafter) and has_report(models_dir() / target / drafter)


def begins_with(kind: str, name: str, drafter: str, target: str = DEFAULT_TARGET) -> dict[str, Any]:
    """Returns the knob values of a fresh choice: the defaults, AUTO where this machine decides."""
    auto = {knob.name: AUTO for knob in knobs(thing(kind, name)) if knob.auto} if is_auto(kind, name, drafter, target) else {}
    return defaults(kind, name, drafter) | auto


def all_knobs() -> dict[tuple[str, str], tuple[Knob, ...]]:
    """Returns the knobs of everything that can be chosen, by (kind, name)."""
    return {(kind, name): knobs(thing(kind, name)) for kind in KINDS for name in names(kind)}


def settle(drafter: str, shape: str | None, rule: str, temperature: float) -> Choice:
    """Returns the nearest choice that fits together: drafters without a tree lose the shape, greedy above temperature 0 becomes rejection."""
    note = ""
    if not takes_shape(drafter):
        shape = None
    elif shape is None:
        shape = default_shape(drafter)
    if temperature > 0 and is_greedy_only(thing("rule", rule)):
        note = f"Rule {rule} works at temperature 0 only, so {ANY_TEMPERATURE} is used: it is lossless at any temperature."
        rule = ANY_TEMPERATURE
    return Choice(drafter, shape, rule, note)


def make_ask(choice: Choice, values: Mapping[Key, Any], *, prompt: str, sampling: Sampling, max_new_tokens: int) -> Ask:
    """Returns the run of a choice; `values` holds knob values by (kind, name, knob), of which only those that apply are taken.

    Raises BadInput naming the knob, the value and what was expected.
    """
    taken: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        name = choice.picked(kind)
        own = knobs(thing(kind, name)) if name is not None else ()
        taken[kind] = {knob.name: knob.parse(values[kind, str(name), knob.name]) for knob in own if (kind, name, knob.name) in values}
    spec = Spec(choice.drafter, choice.shape, taken["drafter"], taken["shape"])
    return Ask(prompt, spec, choice.rule, taken["rule"], sampling, max_new_tokens)


def make_sampling(temperature: Any, top_p: Any, top_k: Any, seed: Any) -> Sampling:
    """Returns the sampling of four values from a page. Raises BadInput for what is no number or out of range."""
    return Sampling(number("temperature", temperature, float), number("top_p", top_p, float), number("top_k", top_k, int), number("seed", seed, int))


def number(name: str, value: Any, kind: type) -> Any:
    """Returns `value` as int or float. Raises BadInput for None, text and not-a-number."""
    what = "a whole number" if kind is int else "a number"
    try:
        if isinstance(value, bool) or value is None or value != value or (kind is int and float(value) != int(value)):
            raise ValueError
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{name}={value!r} cannot be used. Expected {what}.") from None
