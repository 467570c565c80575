"""What the fields of an event may hold. A trace file is untrusted input: whatever passes here is safe to read, plot and show as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from specviz.errors import BadFile

REASONS = ("eos", "length", "context", "stopped", "error")
DEEPEST = 32  # levels of nesting in free records such as meta
Check = Callable[[Any], bool]


def is_whole(value: Any) -> bool:
    """True for a whole number that fits 63 bits: JSON's own have no limit, and True is no number."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_count(value: Any) -> bool:
    """True for a whole number from 0 that fits 63 bits."""
    return is_whole(value) and value >= 0


def told(value: Any) -> str:
    """Returns a value of a file as a sentence shows it, cut to a few words."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_number(value: Any) -> bool:
    """True for a finite number that a float can hold."""
    return is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and all(map(check, value))


def _items(*checks: Check) -> Check:
    """A list of exactly these."""
    return lambda value: isinstance(value, (list, tuple)) and len(value) == len(checks) and all(check(item) for check, item in zip(checks, value, strict=True))


def _by_id(check: Check) -> Check:
    """A record whose keys are numbers written as text."""
    return lambda value: isinstance(value, Mapping) and all(key.isdecimal() and len(key) < 19 and check(item) for key, item in value.items())


def is_record(value: Any) -> bool:
    """True for an object of JSON values, its numbers finite, not nested too deep."""
    return isinstance(value, Mapping) and _plain(value, 0)


def _plain(value: Any, depth: int) -> bool:
    """True for JSON values without non-finite numbers, not nested too deep."""
    if isinstance(value, Mapping):
        return depth < DEEPEST and all(isinstance(key, str) and _plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return depth < DEEPEST and all(_plain(item, depth + 1) for item in value)
    return value is None or isinstance(value, (str, bool)) or is_number(value)


def _part(**kinds: Check) -> Check:
    """A record in which these names, where they are there, hold what they should; others are free."""
    return lambda value: is_record(value) and all(fits(value[name]) for name, fits in kinds.items() if name in value)


_META: dict[str, Check] = {
    "target": _part(name=_text, fingerprint=_maybe(is_record)), "device": _part(name=_text, type=_text), "dtype": _text, "versions": is_record, "seed": is_whole,
    "drafter": _part(name=_text, knobs=is_record, shape=_maybe(_part(name=_text, knobs=is_record)), warnings=_maybe(_list(_text)), budget=_maybe(is_record)),
    "rule": _part(name=_text, knobs=is_record, lossless=_maybe(_flag)),
    "sampling": _part(temperature=is_number, top_p=is_number, top_k=is_whole, seed=is_whole),
}  # fmt: skip


def odd_in_meta(meta: Any) -> str | None:
    """Returns which part of a run's meta does not hold what its readers look for; None when all do. docs/trace-format.md, section meta."""
    return next((name for name, fits in _META.items() if name in meta and not fits(meta[name])), None)


def _draw(value: Any) -> bool:
    return isinstance(value, Mapping) and is_count(value.get("parent")) and _list(is_count)(value.get("children")) and _flag(value.get("replace"))


def _tests(value: Any) -> bool:
    """Columns of one length."""
    kinds = {"node": is_count, "verdict": _text, "reason": _text}
    fit = isinstance(value, Mapping) and all(_list(kinds.get(name, _maybe(is_number)))(column) for name, column in value.items())
    return fit and len({len(column) for column in value.values()}) <= 1


def _baseline(value: Any) -> bool:
    """The record of a plain run: docs/trace-format.md, section finished."""
    seconds = value.get("seconds") if is_record(value) else None
    fit = isinstance(seconds, Mapping) and all(map(is_number, seconds.values())) and is_count(value.get("tokens"))
    return fit and _list(is_number)(value.get("times") or ()) and _list(is_count)(value.get("token_ids") or ())


_COUNTS, _NUMBERS, _TEXTS, _TOP = _list(is_count), _list(_maybe(is_number)), _list(_text), _list(_items(is_count, _maybe(is_number)))

FIELDS: dict[str, Check] = {
    "row": is_count, "round": is_count, "strings": _by_id(_text), "seconds": lambda value: is_record(value) and all(map(_maybe(is_number), value.values())),
    "prompt": _text, "prompt_ids": _COUNTS, "max_new_tokens": is_count, "meta": is_record,
    "token": is_count, "top": _TOP,
    "tokens": _COUNTS, "parents": _list(lambda value: value == -1 or is_count(value)), "depths": _COUNTS, "ranks": _COUNTS, "scores": _NUMBERS, "q": _NUMBERS,
    "source": _TEXTS, "candidate": _list(_flag), "draws": _list(_draw), "tops": _by_id(_TOP), "note": is_record,
    "pruned": _list(_items(is_count, lambda value: value == -1 or is_count(value), _maybe(is_number))),
    "path": _COUNTS, "bonus": _maybe(is_count), "bonus_source": _text, "emitted": _COUNTS, "committed": is_count, "verdicts": _TEXTS, "tests": _tests,
    "p": _NUMBERS, "p_warped": _NUMBERS, "target_rank": _list(_maybe(is_count)), "entropy": _NUMBERS, "wanted": _list(_maybe(is_count)),
    "reason": lambda value: value in REASONS, "text": _text, "rounds": is_count, "message": _text, "baseline": _maybe(_baseline),
}  # fmt: skip


def check(event: Any) -> None:
    """Raises BadFile, naming the field, unless every field of the event holds what it should and the columns fit each other."""
    for name, value in vars(event).items():
        if not FIELDS[name](value):
            raise BadFile(f"Event {event.kind!r}: field {name!r} is not what a trace holds there.")
        if name == "meta" and (odd := odd_in_meta(value)):
            raise BadFile(f"Event {event.kind!r}: {odd!r} in 'meta' is not what a trace holds there (it is {str(value[odd])[:40]!r}).")
    if event.kind == "drafted":
        _check_drafted(event)
    elif event.kind == "verified":
        _check_verified(event)


def _check_drafted(event: Any) -> None:
    size = len(event.tokens)
    _same_length(event, size, ("parents", "depths", "ranks", "scores", "q", "source", "candidate"))
    for node, (parent, depth) in enumerate(zip(event.parents, event.depths, strict=True)):
        if not (parent == -1 and depth == 0 if node == 0 else 0 <= parent < node and depth == event.depths[parent] + 1):
            raise BadFile(f"Round {event.round}: the parents and depths of the tokens do not form a tree.")
    named = [int(node) for node in event.tops] + [parent for _, parent, _ in event.pruned]
    for draw in event.draws:
        named += [draw["parent"], *draw["children"]]
    if not size or any(node >= size for node in named):
        raise BadFile(f"Round {event.round}: 'tops', 'draws' or 'pruned' name nodes that the tree does not have.")


def _check_verified(event: Any) -> None:
    size = len(event.verdicts)
    _same_length(event, size, ("p", "p_warped", "target_rank", "entropy", "wanted"))
    named = [*map(int, event.tops), *event.tests.get("node", ())]
    # a run recorded without detail has no columns, but its path still names nodes
    if any(node >= size for node in (*named, *(event.path if size else ()))) or 0 in event.path:
        raise BadFile(f"Round {event.round}: 'path', 'tests' or 'tops' name nodes that the tree does not have.")


def _same_length(event: Any, size: int, names: tuple[str, ...]) -> None:
    for name in names:
        if len(getattr(event, name)) != size:
            raise BadFile(f"Round {event.round}: column {name!r} does not have {size} entries.")
