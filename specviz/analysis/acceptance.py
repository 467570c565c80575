"""How much of what was drafted was accepted: per depth, per round, and by the draft's own confidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from specviz.trace import Round, Trace


@dataclass(frozen=True)
class DepthAcceptance:
    """Counts per depth, depth 1 first: of `rounds`, how many were `tested` there and how many `accepted` a candidate there.

    A round is tested at depth d when it accepted down to depth d - 1 and had a candidate below that node; a depth that lies
    beyond the tree is unobserved, not rejected.
    """

    rounds: int = 0
    tested: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Share accepted among the rounds tested at each depth: acceptance given that the parent was accepted."""
        return tuple(a / t if t else None for a, t in zip(self.accepted, self.tested, strict=True))

    @property
    def unconditional(self) -> tuple[float | None, ...]:
        """Share of all rounds that accepted a candidate at each depth; their sum plus 1 is tau when no round was cut."""
        return tuple(a / self.rounds if self.rounds else None for a in self.accepted)

    def __add__(self, other: DepthAcceptance) -> DepthAcceptance:
        return DepthAcceptance(self.rounds + other.rounds, add_counts(self.tested, other.tested), add_counts(self.accepted, other.accepted))

    def to_json(self) -> dict[str, Any]:
        counts = {"rounds": self.rounds, "tested": list(self.tested), "accepted": list(self.accepted)}
        return {"conditional": list(self.conditional), "unconditional": list(self.unconditional), "counts": counts}


def add_counts(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Returns the sums place by place; the shorter one is continued with zeros."""
    return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))


def acceptance_by_depth(rounds: Iterable[Round]) -> DepthAcceptance:
    """Returns the counts per depth of some rounds.

    A round that was cut (by an end token or the token limit) is not tested below its last emitted node: what the rule thought
    of deeper candidates never became text.
    """
    total, tested, accepted = 0, list[int](), list[int]()
    for one in rounds:
        total += 1
        reached = len(one.verified.path)
        below = one.verified.bonus is not None and bool(candidates_below(one, one.verified.path[-1] if reached else 0))
        for column, depth in ((tested, reached + below), (accepted, reached)):
            column += [0] * (depth - len(column))
            for place in range(depth):
                column[place] += 1
    return DepthAcceptance(total, tuple(tested), tuple(accepted) + (0,) * (len(tested) - len(accepted)))


def candidates_below(one: Round, node: int) -> tuple[int, ...]:
    """Returns the children of a node that could have been accepted (passengers left out)."""
    drafted = one.drafted
    return tuple(child for child, parent in enumerate(drafted.parents) if parent == node and child and drafted.candidate[child])


@dataclass(frozen=True)
class CalibrationBin:
    """Candidates whose draft confidence lies in [low, high): their mean confidence, mean target probability and share accepted."""

    low: float
    high: float
    count: int
    confidence: float
    target: float | None
    accepted: float


def calibration(trace: Trace, row: int = 0, bins: int = 10) -> tuple[CalibrationBin, ...]:
    """Returns the filled bins of draft confidence against acceptance, over candidates whose parent was accepted.

    Confidence is the draft's unwarped q in the parent's context. An untested candidate counts as not accepted: an earlier
    sibling was chosen. Source: EAGLE-2, section 3 (confidence approximates acceptance).
    """
    found: list[list[tuple[float, float | None, bool]]] = [[] for _ in range(bins)]
    for one in trace.rounds(row):
        path = one.verified.path
        judged = (0, *path) if one.verified.bonus is not None else (0, *path[:-1])
        for node in judged:
            for child in candidates_below(one, node):
                score = one.drafted.scores[child]
                if score is not None and 0.0 <= score <= 1.0:
                    target = one.verified.p[child] if one.verified.p else None
                    found[min(bins - 1, int(score * bins))].append((score, target, child in path))
    return tuple(_bin(place, bins, members) for place, members in enumerate(found) if members)


def _bin(place: int, bins: int, members: list[tuple[float, float | None, bool]]) -> CalibrationBin:
    size, targets = len(members), [target for _, target, _ in members if target is not None]
    confidence, accepted = sum(score for score, _, _ in members) / size, sum(took for _, _, took in members) / size
    return CalibrationBin(place / bins, (place + 1) / bins, size, confidence, sum(targets) / len(targets) if targets else None, accepted)
