"""What speculation should gain (modelled, the formulas of the papers) and where the gain went (measured)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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
