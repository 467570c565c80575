"""The five events of a run: plain frozen records, safe for JSON. App, CLI and plots read these and nothing else.

docs/trace-format.md describes every field. `SCHEMA` rises when a reader of the older form would misread the newer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from specviz.errors import BadFile

SCHEMA = 1
REASONS = ("eos", "length", "context", "stopped", "error")


@dataclass(frozen=True)
class Started:
    """A run begins: the prompt as ids, and everything needed to run it again."""

    kind: ClassVar[str] = "started"
    row: int
    prompt: str
    prompt_ids: Sequence[int]
    max_new_tokens: int
    meta: Mapping[str, Any]
    strings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prefilled:
    """The prompt is in the cache and the first token is known (not counted in tau)."""

    kind: ClassVar[str] = "prefilled"
    row: int
    token: int
    top: Sequence[tuple[int, float]]
    seconds: Mapping[str, float]
    strings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drafted:
    """A candidate tree was proposed. Columns run over its nodes, node 0 is the root."""

    kind: ClassVar[str] = "drafted"
    row: int
    round: int
    tokens: Sequence[int]
    parents: Sequence[int]
    depths: Sequence[int]
    ranks: Sequence[int]
    scores: Sequence[float | None]
    q: Sequence[float | None]
    source: Sequence[str]
    candidate: Sequence[bool]
    draws: Sequence[Mapping[str, Any]]
    tops: Mapping[str, Sequence[tuple[int, float]]]
    pruned: Sequence[tuple[int, int, float]]
    note: Mapping[str, Any]
    seconds: Mapping[str, float]
    strings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verified:
    """The tree was verified and judged. Columns run over the nodes of the Drafted event of the same row and round."""

    kind: ClassVar[str] = "verified"
    row: int
    round: int
    path: Sequence[int]
    bonus: int | None
    bonus_source: str
    emitted: Sequence[int]
    committed: int
    verdicts: Sequence[str]
    tests: Mapping[str, Sequence[Any]]
    p: Sequence[float | None]
    p_warped: Sequence[float | None]
    target_rank: Sequence[int | None]
    entropy: Sequence[float | None]
    wanted: Sequence[int | None]
    tops: Mapping[str, Sequence[tuple[int, float]]]
    seconds: Mapping[str, float]
    strings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """The run ended. `reason` is eos, length, context, stopped or error; `baseline` is {tokens, seconds} of a plain run, if one was made."""

    kind: ClassVar[str] = "finished"
    row: int
    reason: str
    tokens: Sequence[int]
    text: str
    rounds: int
    seconds: Mapping[str, float]
    message: str = ""
    baseline: Mapping[str, Any] | None = None


Event = Started | Prefilled | Drafted | Verified | Finished
KINDS: dict[str, type] = {cls.kind: cls for cls in (Started, Prefilled, Drafted, Verified, Finished)}


def to_json(event: Event) -> dict[str, Any]:
    """Returns the event as a JSON-safe dict with its kind under "event"; non-finite numbers become None."""
    return {"event": event.kind, **{f.name: _safe(getattr(event, f.name)) for f in fields(event)}}


def _safe(value: Any) -> Any:
    if isinstance(value, float):
        return value if -1e308 < value < 1e308 else None
    if isinstance(value, Mapping):
        return {str(key): _safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def from_json(record: Any) -> Event:
    """Returns the event of a dict made by `to_json`. Raises BadFile naming what is wrong; checks columns against each other."""
    if not isinstance(record, dict) or record.get("event") not in KINDS:
        raise BadFile(f"Expected an event of kind {', '.join(KINDS)}, got {str(record)[:80]!r}.")
    cls = KINDS[record["event"]]
    names = {f.name for f in fields(cls)}
    try:
        event = cls(**{key: value for key, value in record.items() if key in names})
    except TypeError as problem:
        raise BadFile(f"Event {record['event']!r} is incomplete: {problem}.") from None
    _check(event)
    return event  # type: ignore[no-any-return]


def _check(event: Any) -> None:
    if not isinstance(event.row, int) or not isinstance(getattr(event, "round", 0), int):
        raise BadFile(f"Event {event.kind!r}: row and round must be whole numbers.")
    if not isinstance(event, Finished) and any(not key.isdigit() for key in _mapping(event, "strings", str)):
        raise BadFile(f"Event {event.kind!r}: the string table must map token ids to text.")
    if not isinstance(event, Started):
        _mapping(event, "seconds", (int, float))
    if isinstance(event, Drafted):
        size = len(event.tokens)
        _columns(event, size, ("parents", "depths", "ranks", "scores", "q", "source", "candidate"))
        _ids(event.kind, event.tokens)
        _numbers(event, ("depths", "ranks", "scores", "q"))
        _tops(event, size)
        if not size or event.parents[0] != -1 or any(not isinstance(p, int) or not 0 <= p < i for i, p in enumerate(event.parents) if i):
            raise BadFile(f"Round {event.round}: the parents do not form a tree.")
    elif isinstance(event, Verified):
        size = len(event.verdicts)
        _columns(event, size, ("p", "p_warped", "target_rank", "entropy", "wanted"))
        _ids(event.kind, event.emitted)
        _numbers(event, ("p", "p_warped", "target_rank", "entropy", "wanted"))
        _tops(event, size)
        _tests(event, size)
        if size and any(not isinstance(node, int) or not 0 < node < size for node in event.path):
            raise BadFile(f"Round {event.round}: the path {event.path} names nodes that the tree does not have.")
    elif isinstance(event, Started):
        _ids(event.kind, event.prompt_ids)
        _mapping(event, "meta")
    elif isinstance(event, Finished):
        _ids(event.kind, event.tokens)
        if event.reason not in REASONS:
            raise BadFile(f"The reason {event.reason!r} is unknown. Expected one of: {', '.join(REASONS)}.")


def _columns(event: Any, size: int, names: tuple[str, ...]) -> None:
    for name in names:
        column = getattr(event, name)
        if not isinstance(column, (list, tuple)) or len(column) != size:
            raise BadFile(f"Round {event.round}: column {name!r} does not have {size} entries.")


def _tests(event: Any, size: int) -> None:
    columns = _mapping(event, "tests", (list, tuple))
    if len({len(column) for column in columns.values()}) > 1:
        raise BadFile(f"Round {event.round}: the columns of 'tests' differ in length.")
    if any(not isinstance(node, int) or not 0 <= node < size for node in columns.get("node", ())):
        raise BadFile(f"Round {event.round}: 'tests' names nodes that the tree does not have.")


def _numbers(event: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if any(v is not None and (isinstance(v, bool) or not isinstance(v, (int, float))) for v in getattr(event, name)):
            raise BadFile(f"Round {event.round}: column {name!r} holds something that is not a number.")


def _tops(event: Any, size: int) -> None:
    for node, top in _mapping(event, "tops").items():
        fits = node.isdigit() and int(node) < size and isinstance(top, (list, tuple))
        if not fits or any(len(pair) != 2 or not isinstance(pair[0], int) or not isinstance(pair[1], (int, float)) for pair in top):
            raise BadFile(f"Round {event.round}: 'tops' of node {node!r} is not a list of (token, probability) of this tree.")


def _mapping(event: Any, name: str, of: type | tuple[type, ...] = object) -> Mapping[str, Any]:
    value = getattr(event, name)
    if not isinstance(value, Mapping) or any(not isinstance(item, of) for item in value.values()):
        raise BadFile(f"Event {event.kind!r}: field {name!r} is not what a trace holds there.")
    return value


def _ids(kind: str, ids: Any) -> None:
    if not isinstance(ids, (list, tuple)) or any(not isinstance(i, int) or isinstance(i, bool) or i < 0 for i in ids):
        raise BadFile(f"Event {kind!r} holds token ids that are not whole numbers from 0.")
