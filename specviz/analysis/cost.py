"""What speculation should gain (modelled, the formulas of the papers) and where the gain went (measured)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from specviz.analysis.summary import Summary, summarise
from specviz.errors import BadInput
from specviz.trace import Trace


@dataclass(frozen=True)
class Modelled:
    """An expected length that a formula gives: tokens per target forward, the bonus included, from `candidates` drafted tokens."""

    kind: ClassVar[str] = "modelled"
    tokens: float
    candidates: int


def chain_length(acceptance: float, depth: int) -> Modelled:
    """Returns (1 - a^(depth + 1)) / (1 - a): a chain whose every token is accepted with the same probability a (Leviathan et al., equation 1)."""
    _check_rate(acceptance)
    return Modelled(sum(acceptance**power for power in range(depth + 1)), depth)


def chain_speedup(acceptance: float, depth: int, draft_cost: float) -> float:
    """Returns the modelled speed-up of a chain; `draft_cost` is one draft step in target steps (Leviathan et al., theorem 3.8)."""
    return chain_length(acceptance, depth).tokens / (depth * draft_cost + 1.0)


def tree_length(hit_rates: Sequence[float], widths: Sequence[int] | None = None) -> Modelled:
    """Returns 1 + sum over depths of the product of hit rates down to there; heads are taken as independent (Medusa, section 2.3).

    hit_rates[k] is how often depth k + 1 holds the target's token among its `widths[k]` children (default: one each).
    """
    sizes = widths or [1] * len(hit_rates)
    if len(sizes) != len(hit_rates):
        raise BadInput(f"Expected one width per hit rate, got {len(sizes)} widths and {len(hit_rates)} rates.")
    tokens, reach, level, candidates = 1.0, 1.0, 1, 0
    for rate, width in zip(hit_rates, sizes, strict=True):
        _check_rate(rate)
        reach *= rate
        tokens += reach
        level *= width
        candidates += level
    return Modelled(tokens, candidates)


def _check_rate(rate: float) -> None:
    if not 0.0 <= rate <= 1.0:
        raise BadInput(f"acceptance={rate!r} is not a probability. Expected 0 to 1.")


@dataclass(frozen=True)
class Decomposition:
    """Where a measured speed-up comes from and where it goes. Seconds are per round; `plain` is one step of plain decoding.

    speedup = tau / ((verify + draft + rule + commit) / plain): tau is its ceiling, each cost takes its share.
    """

    kind: ClassVar[str] = "measured"
    tau: float
    verify: float
    draft: float
    rule: float
    commit: float
    plain: float

    @property
    def round_cost(self) -> float:
        """Cost of one round in steps of plain decoding."""
        return (self.verify + self.draft + self.rule + self.commit) / self.plain

    @property
    def speedup(self) -> float:
        return self.tau / self.round_cost


@dataclass(frozen=True)
class Explained:
    """The formula of the speed-up with the terms of one bench, each per round and in forwards of one node, C(1).

    modelled = tau / (verify + draft + rule + commit); C(1) is the verify phase of plain decoding in the same bench. measured is
    the ratio of tokens per second, where plain decoding pays for its own rule and commit; wall that of whole runs, prefill and
    events included, of which `events` is a part.
    """

    tau: float
    plain_ms: float
    verify: float
    draft: float
    rule: float
    commit: float
    events: float
    measured: float
    wall: float | None

    @property
    def cost(self) -> float:
        return self.verify + self.draft + self.rule + self.commit

    @property
    def modelled(self) -> float:
        return self.tau / self.cost

    @property
    def dearest(self) -> str:
        """The term that takes most: verifying counts by what it costs beyond one node, which plain decoding pays too."""
        return max(self.taken, key=lambda name: self.taken[name])

    @property
    def taken(self) -> dict[str, float]:
        return {"verify": max(0.0, self.verify - 1.0), "draft": self.draft, "rule": self.rule, "commit": self.commit}

    @property
    def without_dearest(self) -> float:
        """The modelled speed-up if that term cost nothing: how much there is to win."""
        return self.tau / (self.cost - self.taken[self.dearest])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "modelled": self.modelled, "dearest": self.dearest, "without_dearest": self.without_dearest}


def explain(mine: Summary, plain: Summary) -> Explained | None:
    """Returns the terms of a drafter's runs against the plain runs of the same prompts; None when one of them has no round."""
    one = (plain.seconds.get("verify") or 0.0) / plain.rounds if plain.rounds else 0.0
    if mine.tau is None or one <= 0.0 or not mine.tokens_per_second or not plain.tokens_per_second:
        return None
    verify, draft, rule, commit, events = ((mine.seconds.get(name) or 0.0) / mine.rounds / one for name in ("verify", "draft", "accept", "commit", "record"))
    walls = mine.seconds.get("wall"), plain.seconds.get("wall")
    wall = (mine.new_tokens / walls[0]) / (plain.new_tokens / walls[1]) if walls[0] and walls[1] else None
    return Explained(mine.tau, 1000.0 * one, verify, draft, rule, commit, events, mine.tokens_per_second / plain.tokens_per_second, wall)


def decompose(trace: Trace, baseline: Trace, row: int = 0) -> Decomposition | None:
    """Returns the decomposition of a run against a plain run of the same prompt; None when one of them has no round yet."""
    plain = summarise(baseline, row)
    return decompose_against(summarise(trace, row), plain.decoding_seconds / plain.rounds if plain.rounds else 0.0)


def decompose_against(summary: Summary, plain_step: float) -> Decomposition | None:
    """The same from a summary and the measured seconds of one plain step."""
    if summary.tau is None or plain_step <= 0.0 or summary.decoding_seconds <= 0.0:
        return None
    spent = {name: (summary.seconds.get(name) or 0.0) / summary.rounds for name in ("verify", "draft", "accept", "commit")}
    return Decomposition(summary.tau, spent["verify"], spent["draft"], spent["accept"], spent["commit"], plain_step)
