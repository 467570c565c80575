"""The five events of a run: plain frozen records, safe for JSON. App, CLI and plots read these and nothing else.

docs/trace-format.md describes every field. `SCHEMA` rises when a reader of the older form would misread the newer one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from specviz.checks import REASONS as REASONS
from specviz.checks import check
from specviz.errors import BadFile

SCHEMA = 1


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
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(item) for item in value]
    raise TypeError(f"An event holds a {type(value).__name__}; expected plain numbers, text, lists and records.")


def from_json(record: Any) -> Event:
    """Returns the event of a dict made by `to_json`. Raises BadFile naming what is wrong; unknown fields are ignored."""
    kind = record.get("event") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadFile(f"Expected an event of kind {', '.join(KINDS)}, got {str(kind)[:40]!r} in a {type(record).__name__}.")
    cls = KINDS[kind]
    names = {f.name for f in fields(cls)}
    try:
        event = cls(**{key: value for key, value in record.items() if key in names})
    except TypeError as problem:
        raise BadFile(f"Event {kind!r} is incomplete: {problem}.") from None
    check(event)
    return event


def named_ids(event: Event) -> set[int]:
    """Returns every token id that the event names; the string tables up to it hold the text of each."""
    match event:
        case Started():
            return set(event.prompt_ids)
        case Prefilled():
            return {event.token, *(token for token, _ in event.top)}
        case Drafted():
            return {*event.tokens, *(token for token, _, _ in event.pruned), *(token for top in event.tops.values() for token, _ in top)}
        case Verified():
            wanted = (token for token in event.wanted if token is not None)
            return {*event.emitted, *wanted, *(token for top in event.tops.values() for token, _ in top)}
        case Finished():
            return set(event.tokens)
