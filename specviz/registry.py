"""The file name is the key: finds one object per file, reads its knobs from its signature, binds values to it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from specviz.errors import BadInput

AUTO = "auto"  # the value of a knob that this machine's measured costs decide


@dataclass(frozen=True)
class Knob:
    """What a keyword-only parameter says of itself: the CLI flag and the UI control are made from it.

    `check` raises BadInput for a value of the right type that cannot be used; name, type and default come from the signature.
    `offers` lists values that are at hand when it is asked; unlike `choices` it rules out no others.
    """

    label: str
    help: str = ""
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    choices: tuple[Any, ...] | None = None
    offers: Callable[[], Iterable[Any]] | None = None
    advanced: bool = False
    auto: bool = False
    check: Callable[[Any], object] | None = None
    name: str = ""
    type: type = str
    default: Any = None

    def parse(self, value: Any) -> Any:
        """Returns `value` as this knob's type; raises BadInput naming the knob, the value and what was expected."""
        if self.auto and value == AUTO:
            return AUTO
        try:
            parsed = _as_type(value, self.type)
        except (TypeError, ValueError, OverflowError):
            raise BadInput(f"{self.name}={value!r} is not {_article(self.type)}. {self._expected()}") from None
        if parsed != parsed:
            raise BadInput(f"{self.name} is not a number. {self._expected()}")
        if self.choices is not None and parsed not in self.choices:
            raise BadInput(f"{self.name}={value!r} is not a choice. {self._expected()}")
        if (self.minimum is not None and parsed < self.minimum) or (self.maximum is not None and parsed > self.maximum):
            raise BadInput(f"{self.name}={value!r} is out of range. {self._expected()}")
        if self.check is not None:
            self.check(parsed)
        return parsed

    def _expected(self) -> str:
        if self.choices is not None:
            return f"Expected one of: {', '.join(map(str, self.choices))}."
        if self.minimum is not None or self.maximum is not None:
            low = "any" if self.minimum is None else f"{self.minimum:g}"
            high = "any" if self.maximum is None else f"{self.maximum:g}"
            return f"Expected {_article(self.type)} from {low} to {high}{f', or {AUTO}' if self.auto else ''}."
        return f"Expected {_article(self.type)}, for example {self.default!r}."

    def to_json(self) -> dict[str, Any]:
        """Returns the record that `list --json` prints."""
        return {
            "name": self.name, "label": self.label, "help": self.help, "type": self.type.__name__, "default": self.default,
            "minimum": self.minimum, "maximum": self.maximum, "step": self.step, "advanced": self.advanced, "auto": self.auto,
            "choices": None if self.choices is None else list(self.choices), "offers": None if self.offers is None else list(self.offers()),
        }  # fmt: skip


_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def _as_type(value: Any, kind: type) -> Any:
    if kind is bool and isinstance(value, str):
        if value.lower() not in _TRUE + _FALSE:
            raise ValueError(value)
        return value.lower() in _TRUE
    if kind is int:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError(value)
        return int(value)
    return kind(value)


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "yes or no", str: "text"}.get(kind, kind.__name__)


def knobs(thing: Callable[..., Any]) -> tuple[Knob, ...]:
    """Returns the knobs of a function or class: its keyword-only parameters annotated with `Annotated[type, Knob(...)]`."""
    target = thing.__init__ if inspect.isclass(thing) else thing
    parameters = [p for p in inspect.signature(target).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    # only these annotations are evaluated: the others may name types that are imported for type checking alone
    holder = type("Holder", (), {"__annotations__": {p.name: p.annotation for p in parameters if p.annotation is not p.empty}})
    hints = get_type_hints(holder, globalns=target.__globals__, include_extras=True)
    found = []
    for parameter in parameters:
        hint = hints.get(parameter.name)
        if get_origin(hint) is not Annotated:
            continue
        kind, *extras = get_args(hint)
        spec = next((extra for extra in extras if isinstance(extra, Knob)), None)
        if spec is not None:
            found.append(replace(spec, name=parameter.name, type=kind, default=parameter.default))
    return tuple(found)


@cache
def discover(package: ModuleType) -> Mapping[str, Any]:
    """Returns {file name: object} for every public file of a package, in file-name order.

    The object is a function of the file's own name, or a class of that name in CamelCase, made in that file. Files without one are helpers.
    """
    found = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        if info.name.startswith("_") or info.name == "base":
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        camel = "".join(part.capitalize() for part in info.name.split("_"))
        thing = getattr(module, camel, None) or getattr(module, info.name, None)
        if getattr(thing, "__module__", None) == module.__name__:
            found[info.name] = thing
    return found


def summary(thing: Any) -> str:
    """Returns the first line of the docstring: the description that app and CLI show."""
    return (inspect.getdoc(thing) or "").split("\n")[0]


@dataclass(frozen=True)
class Bound:
    """A registered object with its knob values: what a run uses and a trace records."""

    name: str
    thing: Callable[..., Any]
    values: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.thing(*args, **kwargs, **self.values)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "knobs": dict(self.values)}


def bind(package: ModuleType, name: str, values: Mapping[str, Any] | None = None) -> Bound:
    """Returns the object called `name` with every knob filled: given values checked, the others at their default.

    Raises BadInput naming what exists when `name` or a knob is unknown, or when a value does not fit.
    """
    kind = package.__name__.rsplit(".", 1)[-1]
    known = discover(package)
    if name not in known:
        raise BadInput(f"No {name!r} in {kind}. There are: {', '.join(known)}.")
    specs = {knob.name: knob for knob in knobs(known[name])}
    for key in values or {}:
        if key not in specs:
            has = ", ".join(specs) or "none"
            raise BadInput(f"{name!r} has no knob {key!r}. Its knobs: {has}.")
    filled = {key: spec.parse((values or {}).get(key, spec.default)) for key, spec in specs.items()}
    return Bound(name, known[name], filled)
