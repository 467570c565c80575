"""The JSON that the player draws: rounds in columns over nodes, every text and sentence already made. No gradio, no torch.

    run, row, from, total, status, message   which rounds of which run these are; `status` is running or how it ended
    start                                    the round that shows most, to open at
    about, prompt, first, summary            the run in one line, what was asked, the prefill's token, the numbers on top
    rounds[]  i, live, path, strip, node, top, test, bonus, cut, note, ms, say

`say` is the round's list of sentences; `why` entries index it, the headline first, because siblings often share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from specviz.analysis.case import Case, Why
from specviz.analysis.summary import measured_speedup, summarise
from specviz.analysis.why import explain, summary_of, why_bonus, why_first, why_pruned
from specviz.analysis.words import joined, visible
from specviz.trace import Round, Trace

RUNNING = "running"
_TESTED = ("p", "q", "residual_p", "residual_q", "limit", "uniform")


def whole(trace: Trace, row: int = 0) -> dict[str, Any]:
    """Returns all rounds of a row: the last value of a run, and the one for a recording."""
    return _view(trace, row, 0)


def tail(trace: Trace, row: int = 0, last: int = 4) -> dict[str, Any]:
    """Returns the newest `last` rounds of a row; the player merges them into what it has of the same run."""
    return _view(trace, row, max(0, len(trace.rounds(row)) - last))


def _view(trace: Trace, row: int, begin: int) -> dict[str, Any]:
    start, end, rounds, strings = trace.started(row), trace.finished(row), trace.rounds(row), trace.strings
    meta = start.meta
    pieces = joined(strings.get(token, f"⟨{token}⟩") for token in trace.emitted(row))
    place = (trace.prefilled(row) is not None) + sum(len(one.verified.emitted) for one in rounds[:begin])
    told = []
    for one in rounds[begin:]:
        case = Case(one.drafted, one.verified, strings, meta.get("sampling", {}), meta.get("rule", {}))
        told.append(_round(case, one, pieces[place : place + len(one.verified.emitted)]))
        place += len(one.verified.emitted)
    if told and end is not None and end.reason == "eos" and told[-1]["strip"]:
        told[-1]["strip"][-1].append("end")
    return {
        "run": _fingerprint(trace, row), "row": row, "from": begin, "total": len(rounds), "status": end.reason if end else RUNNING,
        "message": end.message if end else "", "start": _best(rounds), "about": _about(meta), "prompt": {"text": start.prompt, "tokens": len(start.prompt_ids)},
        "first": _first(trace, row, pieces, strings), "summary": _summary(trace, row), "rounds": told,
    }  # fmt: skip


def _fingerprint(trace: Trace, row: int) -> str:
    """Names a run by what it was asked: the same for every update, and after saving and loading."""
    start = trace.started(row)
    asked = json.dumps([start.row, start.prompt, list(start.prompt_ids), start.max_new_tokens, dict(start.meta)], sort_keys=True, default=str)
    return hashlib.blake2b(asked.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _best(rounds: Sequence[Round]) -> int:
    """The first round among those that accepted most."""
    return max(range(len(rounds)), key=lambda i: (len(rounds[i].verified.path), -i), default=0)


def _about(meta: Mapping[str, Any]) -> dict[str, Any]:
    drafter, rule, sampling = meta.get("drafter", {}), meta.get("rule", {}), meta.get("sampling", {})
    shape = drafter.get("shape") or {}
    knobs = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in (shape or drafter).get("knobs", {}).items())
    device = meta.get("device", {})
    return {
        "drafter": str(drafter.get("name", "?")), "shape": shape.get("name", ""), "knobs": knobs, "rule": str(rule.get("name", "?")),
        "lossless": bool(rule.get("lossless")), "temperature": sampling.get("temperature", 0.0), "top_p": sampling.get("top_p", 1.0),
        "top_k": sampling.get("top_k", 0), "seed": sampling.get("seed", 0), "target": str(meta.get("target", {}).get("name", "?")),
        "device": str(device.get("name", device.get("type", "?"))), "dtype": str(meta.get("dtype", "")),
    }  # fmt: skip


def _first(trace: Trace, row: int, pieces: Sequence[str], strings: Mapping[int, str]) -> dict[str, Any] | None:
    first = trace.prefilled(row)
    if first is None:
        return None
    why = why_first(first, strings)
    return {"text": pieces[0], "seen": _seen(strings, first.token), "say": [why.headline, *why.more], "target": _top(first.top, strings)}


def _summary(trace: Trace, row: int) -> dict[str, Any]:
    numbers, speedup = summarise(trace, row), measured_speedup(trace, row)
    told = {"tau": (numbers.tau, ".2f"), "speedup": (speedup, ".2f"), "rate": (numbers.tokens_per_second, ".1f")}
    return {
        "tau": _short(numbers.tau), "tokens": numbers.new_tokens, "forwards": numbers.target_forwards, "drafted": numbers.draft_tokens,
        "accepted": numbers.accepted_draft_tokens, "tokens_per_second": _short(numbers.tokens_per_second), "speedup": _short(speedup), "says": {name: "–" if value is None else format(value, form) for name, (value, form) in told.items()},
    }  # fmt: skip


class _Sentences:
    """The sentences of one round, each kept once."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def add(self, why: Why) -> list[int]:
        return [self.known.setdefault(text, len(self.known)) for text in (why.headline, *why.more)]


def _round(case: Case, one: Round, pieces: Sequence[str]) -> dict[str, Any]:
    drafted, verified, strings, say = one.drafted, one.verified, case.strings, _Sentences()
    bonus = None
    if verified.bonus is not None:
        why = why_bonus(case)
        bonus = {"text": _seen(strings, verified.bonus), "parent": case.end, "kind": why.verdict, "source": verified.bonus_source, "why": say.add(why)}
    spots = [*verified.path, *([-1] if bonus else [])]
    kinds = ["accepted"] * len(verified.path) + [bonus["kind"]] * bool(bonus) if bonus else ["accepted"] * len(verified.path)
    cut = [
        [_seen(strings, token), parent, _short(score), say.add(why_pruned(case, place))]
        for place, (token, parent, score) in enumerate(drafted.pruned) if parent >= 0
    ]  # fmt: skip
    return {
        "i": verified.round, "live": summary_of(case), "path": list(verified.path), "node": _nodes(case, say), "top": _tops(case), "test": _tests(case),
        "strip": [[text, kind, node] for text, kind, node in zip(pieces, kinds, spots, strict=False)],
        "bonus": bonus, "cut": cut, "note": dict(drafted.note), "committed": verified.committed,
        "ms": {name: _short(1000.0 * seconds) for name, seconds in verified.seconds.items()}, "say": list(say.known),
    }  # fmt: skip


def _nodes(case: Case, say: _Sentences) -> dict[str, Any]:
    """Columns over nodes; q, warped p and source are left out where they say nothing."""
    drafted, verified = case.drafted, case.verified
    totals: list[float | None] = []
    for score, parent in zip(drafted.scores, drafted.parents, strict=True):
        above = 1.0 if parent < 0 else totals[parent]
        totals.append(None if score is None or above is None else score * above)
    columns: dict[str, Any] = {
        "text": [_seen(case.strings, token) for token in drafted.tokens], "parent": list(drafted.parents), "rank": list(drafted.ranks),
        "score": [_short(v) for v in drafted.scores], "total": [_short(v) for v in totals], "p": [_short(v) for v in verified.p],
        "place": list(verified.target_rank), "verdict": [case.verdict(node) for node in range(len(drafted.tokens))],
        "why": [say.add(explain(case, node)) for node in range(len(drafted.tokens))],
    }  # fmt: skip
    if any(value is not None for value in drafted.q):
        columns["q"] = [_short(value) for value in drafted.q]
    if not case.greedy and case.warps:
        columns["warped"] = [_short(value) for value in verified.p_warped]
    if len(set(drafted.source)) > 1:
        columns["source"] = list(drafted.source)
    return columns


def _tops(case: Case) -> dict[str, Any]:
    """Per node that has something below it: the target's and the draft's first choices there, and what the target wanted."""
    drafted, verified, strings = case.drafted, case.verified, case.strings
    return {
        node: {
            "target": _top(verified.tops.get(node, ()), strings), "draft": _top(drafted.tops.get(node, ()), strings),
            "entropy": _short(verified.entropy[int(node)]),
            "wanted": None if verified.wanted[int(node)] is None else _seen(strings, verified.wanted[int(node)]),
        }
        for node in sorted({*verified.tops, *drafted.tops}, key=int)
    }  # fmt: skip


def _tests(case: Case) -> dict[str, dict[str, Any]]:
    """What the rule compared, by node; numbers that it did not use are left out."""
    return {str(node): {name: _short(test[name]) for name in _TESTED if test.get(name) is not None} for node, test in case.tests.items()}


def _top(top: Sequence[Sequence[Any]], strings: Mapping[int, str]) -> list[list[Any]]:
    return [[_seen(strings, token), _short(p)] for token, p in top]


def _seen(strings: Mapping[int, str], token: int | None) -> str:
    return "" if token is None else visible(strings.get(token, f"⟨{token}⟩"))


def _short(value: float | None) -> float | None:
    """Four significant digits are more than a screen shows; the trace keeps them all."""
    return None if value is None else float(f"{value:.4g}")
