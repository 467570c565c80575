"""From names and knob values to objects: `eagle@dynamic:nodes=12,depth=4` to a drafter that is ready to run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specviz import acceptance, drafters, shapes
from specviz.analysis.budget import Budget
from specviz.analysis.head_report import has_report
from specviz.drafters.autoregressive import Autoregressive
from specviz.drafters.base import Drafter
from specviz.errors import BadInput
from specviz.registry import AUTO, Bound, bind, discover, knobs
from specviz.say import Say, silent
from specviz.shapes.dynamic import fitting

if TYPE_CHECKING:
    from specviz.target import Target

PLAIN = "autoregressive"
FALLBACK_NODES = 8  # what `auto` takes where nothing is known of the drafter


@dataclass(frozen=True)
class Spec:
    """A drafter with its shape and the knobs that were given; what is not given takes its default."""

    drafter: str
    shape: str | None = None
    drafter_knobs: Mapping[str, Any] = field(default_factory=dict)
    shape_knobs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        values = [f"{key}={value}" for key, value in (*self.drafter_knobs.items(), *self.shape_knobs.items())]
        return self.drafter + (f"@{self.shape}" if self.shape else "") + (":" + ",".join(values) if values else "")


def parse_spec(text: str) -> Spec:
    """Returns the Spec of `drafter@shape:knob=value,...`; a knob belongs to the shape if it has one of that name, else to the drafter.

    Raises BadInput with the text and the expected form.
    """
    head, _, tail = text.strip().partition(":")
    name, _, shape = head.partition("@")
    known = discover(drafters)
    if name not in known:
        raise BadInput(f"No drafter {name!r} in {text!r}. There are: {', '.join(known)}.")
    shape_name = shape or known[name].default_shape
    if shape_name is not None and shape_name not in discover(shapes):
        raise BadInput(f"No shape {shape_name!r} in {text!r}. There are: {', '.join(discover(shapes))}.")
    shape_has = [k.name for k in knobs(discover(shapes)[shape_name])] if shape_name else []
    fitting = [*(k.name for k in knobs(known[name])), *shape_has]
    of_shape: dict[str, Any] = {}
    of_drafter: dict[str, Any] = {}
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"{part!r} in {text!r} is not knob=value. Expected for example eagle@dynamic:nodes=12,depth=4.")
        key = key.strip()
        if key not in fitting:
            raise BadInput(f"{head!r} has no knob {key!r}. Its knobs: {', '.join(fitting) or 'none'}.")
        if key in of_shape or key in of_drafter:
            raise BadInput(f"{text!r} gives {key!r} twice. Give it once.")
        (of_shape if key in shape_has else of_drafter)[key] = value.strip()
    return Spec(name, shape or None, of_drafter, of_shape)


def split_specs(text: str) -> list[str]:
    """Splits `a,b@shape:x=1,y=2,c` into its specs: a part with `=` and no `:` belongs to the spec before it."""
    parts: list[str] = []
    for piece in text.split(","):
        if parts and "=" in piece and ":" not in piece:
            parts[-1] += f",{piece}"
        elif piece.strip():
            parts.append(piece.strip())
    return parts


def check_spec(spec: Spec) -> Spec:
    """Returns the spec after checking every name and value in it, before any model is loaded. Raises BadInput."""
    build_shape(spec, bind(drafters, spec.drafter, spec.drafter_knobs).thing)  # type: ignore[arg-type]
    return spec


def build_drafter(target: Target, spec: Spec, *, temperature: float = 0.0, say: Say = silent) -> Drafter:
    """Returns the drafter of `spec`, loaded for `target`, with the tree that it will draw.

    `nodes=auto` is decided here, for runs at `temperature`; where this machine was not measured yet it is measured first, and `say`
    is told. Raises BadInput for a wrong name or knob, Missing for a lost checkpoint.
    """
    return shaped(load_drafter(target, spec), spec, temperature=temperature, say=say)


def load_drafter(target: Target, spec: Spec) -> Drafter:
    """Returns the drafter of `spec` with its weights; its tree is not decided yet, which `shaped` does. Raises as `build_drafter`."""
    bound = bind(drafters, spec.drafter, spec.drafter_knobs)
    cls: Any = bound.thing
    shape = build_shape(spec, cls)
    made: Drafter = cls(target, shape=shape, **bound.values) if shape is not None else cls(target, **bound.values)
    made.name = bound.name
    made.spec = {"knobs": dict(bound.values), "shape": None if shape is None else shape.to_json()}
    return made


def shaped(made: Drafter, spec: Spec, *, temperature: float = 0.0, say: Say = silent) -> Drafter:
    """Returns a loaded drafter with the tree of `spec`; the weights are shared, so that this costs nothing.

    Where `auto` finds that no tree pays here, it is the drafter of plain decoding that is returned; its record says who was asked for.
    """
    shape = build_shape(spec, type(made), auto_knobs(made))
    if shape is None:
        return made
    budget = None
    if shape.values.get("nodes") == AUTO:
        from specviz.profiling.budget import auto_budget  # here, as it brings the engine with it, and naming a drafter should not

        fallback = type(made).default_knobs.get("nodes", FALLBACK_NODES)
        budget = auto_budget(made.target, made, temperature, fallback, say)
        say(budget.text)
        if budget.plain:
            return _plain(made.target, spec, budget)
        shape = replace(shape, values={**shape.values, "nodes": budget.nodes})
    ready: Any = copy.copy(made)  # safe: a drafter keeps nothing of a run
    ready.shape = _fitted(shape, made)
    ready.spec = {**made.spec, "shape": ready.shape.to_json(), **({"budget": budget.to_json()} if budget else {})}
    drafter: Drafter = ready
    return drafter


def auto_of(made: Drafter, spec: Spec) -> bool:
    """True when the number of nodes of this spec is left to the machine."""
    shape = build_shape(spec, type(made), auto_knobs(made))
    return shape is not None and shape.values.get("nodes") == AUTO


def auto_knobs(made: Drafter) -> dict[str, Any] | None:
    """Returns what a learned drafter's bare name means where its head has a report: `nodes=auto`. None: the drafter's own knobs."""
    folder = getattr(made, "folder", None)
    return {"nodes": AUTO} if folder is not None and has_report(folder) else None


def _fitted(shape: Bound, made: Drafter) -> Bound:
    """Returns the shape with those knobs that were left to `auto` as they suit its nodes."""
    left = {name for name, value in shape.values.items() if value == AUTO}
    if not left:
        return shape
    found = fitting(shape.values["nodes"], wide=made.wide, stops=made.stops and "stop_below" in left)
    return replace(shape, values={**shape.values, **{name: found[name] for name in left}})


def _plain(target: Target, spec: Spec, budget: Budget) -> Drafter:
    plain = Autoregressive(target)
    plain.name, plain.spec = PLAIN, {"knobs": {}, "shape": None, "asked": str(spec), "budget": budget.to_json()}
    return plain


def build_shape(spec: Spec, cls: type[Drafter], suited: Mapping[str, Any] | None = None) -> Bound | None:
    """Returns the bound shape of `spec`; None for a drafter that has no tree to shape.

    A bare name takes the drafter's default shape with the knobs that suit it (`suited`, else the drafter's own); once a shape or a
    knob is named, the shape's own defaults fill the rest, so that `eagle@dynamic:nodes=24` means the same whatever a drafter
    prefers. With `nodes=auto` the knobs that depend on it are auto too, unless they are given.
    """
    takes = "shape" in inspect.signature(cls.__init__).parameters
    if not takes:
        if spec.shape or spec.shape_knobs:
            raise BadInput(f"Drafter {spec.drafter!r} has no tree shape to choose, got {spec.shape or dict(spec.shape_knobs)!r}.")
        return None
    name = spec.shape or cls.default_shape
    assert name is not None
    bare = spec.shape is None and not spec.shape_knobs
    given = dict(suited or cls.default_knobs) if bare else dict(spec.shape_knobs)
    if given.get("nodes") == AUTO and name in discover(shapes):
        given = {knob.name: AUTO for knob in knobs(discover(shapes)[name]) if knob.auto} | given
    return bind(shapes, name, given)


def build_rule(name: str, values: Mapping[str, Any] | None = None) -> Bound:
    """Returns the acceptance rule `name` with its knobs filled. Raises BadInput when it or a knob is unknown."""
    return bind(acceptance, name, values)
