"""The report that lies beside a trained head: what it reaches, on which text, and how it was trained. Read and written as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from specviz.analysis.acceptance import CalibrationBin
from specviz.analysis.words import harmless_record
from specviz.checks import is_count, is_number, is_record
from specviz.errors import BadFile, Missing

FORMAT = "specviz-head-report-1"
NAME = "report.json"
SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 60)  # nodes of the growing trees that a report measures
MAIN_NODES = 24  # the tree that depths, categories and temperatures are compared at
LARGEST = 16 * 2**20  # bytes; a report is a few dozen KB


@dataclass(frozen=True)
class ReportTarget:
    """The target that was measured with: its name and the hash of its weights."""

    name: str
    weights: str


@dataclass(frozen=True)
class ReportText:
    """The fixed text: file name of the prompts, a hash over them, how many, new tokens in all and at most per prompt."""

    name: str
    prompts: int
    tokens: int
    max_new_tokens: int
    hash: str = ""


@dataclass(frozen=True)
class Greedy:
    """One tree shape at temperature 0, measured off line; `nodes` counts the root, `categories` gives tau per kind of prompt.

    `reached[d]` counts rounds that accepted d candidates and had one below, `accepted[d]` those that accepted it (d from 0).
    """

    shape: str
    spec: str
    nodes: int
    tau: float
    rounds: int
    reached: tuple[int, ...]
    accepted: tuple[int, ...]
    categories: Mapping[str, float]

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Acceptance per depth given that the parent was accepted."""
        return _shares(self.reached, self.accepted)


@dataclass(frozen=True)
class Checked:
    """One spec on a few prompts twice: tau off line, and tau when it really decodes."""

    spec: str
    prompts: int
    off_line: float
    decoded: float


@dataclass(frozen=True)
class Sampled:
    """Real decoding above temperature 0; fields as in Greedy."""

    temperature: float
    spec: str
    nodes: int
    prompts: int
    tau: float
    reached: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Acceptance per depth given that the parent was accepted."""
        return _shares(self.reached, self.accepted)


@dataclass(frozen=True)
class Misses:
    """How many tokens of the text lie outside the draft vocabulary, where a draft can only miss."""

    tokens: int
    outside: int


@dataclass(frozen=True)
class Point:
    """A value at a training step."""

    step: int
    value: float


@dataclass(frozen=True)
class LearningPoint:
    """Held-out chain tau after training on so many answer tokens; kind "data": a fit of its own, "training": on the way of this fit.

    `epochs`: how often a fit of its own went through them. Fits that differ in it tell of more than the amount of data.
    """

    tokens: int
    tau: float
    kind: str
    epochs: float | None = None


@dataclass(frozen=True)
class HeadReport:
    """Everything that was measured about one head; a part that was not measured is empty or None."""

    method: str
    target: ReportTarget
    checkpoint: str  # sha256 of model.safetensors, first 16 hex digits
    made: str  # ISO date
    seconds: float  # wall time of the report
    text: ReportText
    greedy: tuple[Greedy, ...] = ()
    checked: Checked | None = None
    sampled: tuple[Sampled, ...] = ()
    misses: Misses = Misses(0, 0)
    calibration: tuple[CalibrationBin, ...] = ()
    loss: tuple[Point, ...] = ()
    held_out: tuple[Point, ...] = ()
    learning_curve: tuple[LearningPoint, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, float] | None = None

    @property
    def main(self) -> Greedy | None:
        """The tree of MAIN_NODES that grows with the draft's confidence; the first shape where there is none."""
        found = (one for one in self.greedy if one.nodes == MAIN_NODES and "nodes=" in one.spec)
        return next(found, self.greedy[0] if self.greedy else None)

    def grown(self, nodes: int) -> Greedy | None:
        """Returns the measurement of a tree that grows to `nodes`, None when it was not made."""
        return next((one for one in self.greedy if one.nodes == nodes and "nodes=" in one.spec), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the record that `report.json` holds."""
        record = {"format": FORMAT, **asdict(self)}
        for bin_ in record["calibration"]:
            del bin_["target"]  # the target's p is not part of the fixed text
        return record | {name: [[one.step, one.value] for one in getattr(self, name)] for name in ("loss", "held_out")}


def from_json(record: Any, where: str = "The report") -> HeadReport:
    """Returns the report of a record; raises BadFile naming the field that is not what it should be."""
    if not isinstance(record, Mapping) or not isinstance(record.get("format"), str):
        raise BadFile(f"{where} is no head report: it has no format. Expected {FORMAT!r}.")
    if record["format"] != FORMAT:
        raise BadFile(f"{where} has the format {record['format']!r}, this specviz reads {FORMAT!r}. Make the report again.")
    points = {name: _points(record.get(name, ()), f"{where}, {name}") for name in ("loss", "held_out")}
    checked = record.get("checked")
    parts = {
        "target": _read(ReportTarget, record.get("target"), f"{where}, target"),
        "text": _read(ReportText, record.get("text"), f"{where}, text"),
        "greedy": _list(Greedy, record, "greedy", where),
        "checked": None if checked is None else _read(Checked, checked, f"{where}, checked"),
        "sampled": _list(Sampled, record, "sampled", where),
        "misses": _read(Misses, record.get("misses", {"tokens": 0, "outside": 0}), f"{where}, misses"),
        "calibration": _list(CalibrationBin, record, "calibration", where, target=None),
        "learning_curve": _list(LearningPoint, record, "learning_curve", where),
        **points,
    }
    return _read(HeadReport, record, where, **parts)


def has_report(folder: Path) -> bool:
    """True when a report lies beside the head."""
    return (folder / NAME).is_file()


def load_report(place: Path) -> HeadReport:
    """Reads a report: a head's folder or the file itself. Raises Missing where there is none, BadFile when it is damaged."""
    path = place / NAME if place.is_dir() else place
    if not path.is_file():
        raise Missing(f"There is no report at {path}. Make one with `python -m specviz report METHOD --prompts FILE`.")
    try:
        if path.stat().st_size > LARGEST:
            raise BadFile(f"{path} is larger than {LARGEST >> 20} MiB. Expected a head report.")
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{path} cannot be read as a head report: {str(problem)[:120]}.") from problem
    return from_json(record, str(path))


def _shares(reached: Sequence[int], accepted: Sequence[int]) -> tuple[float | None, ...]:
    return tuple(a / r if r else None for a, r in zip(accepted, reached, strict=True))


# ---- reading: a report may come from anywhere, so every field is checked


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(is_number, value.values()))


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": is_count,
    "float": is_number,
    "float | None": lambda value: value is None or is_number(value),
    "tuple[int, ...]": lambda value: isinstance(value, (list, tuple)) and all(map(is_count, value)),
    "Mapping[str, float]": _is_named,
    "Mapping[str, float] | None": lambda value: value is None or _is_named(value),
    "Mapping[str, Any]": is_record,
}
T = TypeVar("T")


def _read(kind: type[T], record: Any, where: str, **ready: Any) -> T:
    """Returns a dataclass from a record, its fields checked by their annotation; `ready` are fields that were read already."""
    if not isinstance(record, Mapping):
        raise BadFile(f"{where} is missing or no JSON object.")
    values: dict[str, Any] = dict(ready)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name in ready:
            continue
        if one.name not in record:
            if one.default is MISSING and one.default_factory is MISSING:
                raise BadFile(f"{where} has no field {one.name!r}.")
            continue
        value = record[one.name]
        if not _CHECKS[str(one.type)](value):
            raise BadFile(f"{where}: field {one.name!r} is {str(value)[:60]!r}, expected {one.type}.")
        values[one.name] = tuple(value) if isinstance(value, list) else harmless_record(value)
    if "reached" in values:
        _check_counts(values, where)
    return kind(**values)


def _check_counts(values: Mapping[str, Any], where: str) -> None:
    """Raises BadFile for counts that no run can give: a gate must not pass on them."""
    reached, accepted = values["reached"], values["accepted"]
    if len(reached) != len(accepted):
        raise BadFile(f"{where}: 'reached' and 'accepted' differ in length.")
    if any(more > whole for more, whole in zip(accepted, reached, strict=True)):
        raise BadFile(f"{where}: more candidates were accepted than rounds reached their depth.")
    if not 0.0 <= values["tau"] <= values["nodes"]:  # 0: no round was measured; else a round gives its bonus token and at most its tree
        raise BadFile(f"{where}: tau {values['tau']:g} is not possible with {values['nodes']} nodes.")


def _list(kind: type[T], record: Mapping[str, Any], name: str, where: str, **ready: Any) -> tuple[T, ...]:
    found = record.get(name, ())
    if not isinstance(found, (list, tuple)):
        raise BadFile(f"{where}: field {name!r} is no list.")
    return tuple(_read(kind, one, f"{where}, {name}[{place}]", **ready) for place, one in enumerate(found))


def _points(found: Any, where: str) -> tuple[Point, ...]:
    fit = isinstance(found, (list, tuple)) and all(isinstance(p, (list, tuple)) and len(p) == 2 and is_count(p[0]) and is_number(p[1]) for p in found)
    if not fit:
        raise BadFile(f"{where} is no list of [step, value] pairs.")
    return tuple(Point(step, float(value)) for step, value in found)
