"""Profile: what forwards and draft rounds cost on one machine, as `python -m specviz profile` measured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from specviz.errors import BadInput

PHASES = ("draft", "verify", "accept", "commit", "record")
Curve = Mapping[int, float]  # nodes -> milliseconds


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing in milliseconds: median, lower and upper quartile, how many."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the spread of at least one value."""
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
        return cls(median(values), low, high, len(values))


@dataclass(frozen=True)
class Rounds:
    """What one round costs at one node budget: milliseconds by phase over `count` rounds, draft steps and verified nodes on average."""

    ms: Mapping[str, Spread]
    nodes: float
    steps: float
    drafted: float
    count: int

    @property
    def rest(self) -> float:
        """Rule and commit: what a round costs besides drafting and verifying."""
        return self.ms["accept"].median + self.ms["commit"].median


@dataclass(frozen=True)
class DrafterCosts:
    """One drafter's rounds by node budget (0: it has no budget to choose), at temperature 0 or above it."""

    name: str
    checkpoint: str | None
    sampled: bool
    weights: int
    rounds: Mapping[int, Rounds]

    @property
    def key(self) -> str:
        return costs_key(self.name, self.sampled)

    @property
    def step_ms(self) -> float | None:
        """Milliseconds of one draft step: the round's draft over its steps, median over budgets; None without steps."""
        each = [one.ms["draft"].median / one.steps for nodes, one in self.rounds.items() if one.steps and nodes != 1]
        return median(each) if each else None


def costs_key(name: str, sampled: bool) -> str:
    """Returns the name of a drafter's entry in a profile."""
    return f"{name} (T > 0)" if sampled else name


@dataclass(frozen=True)
class Profile:
    """Forward cost by nodes and batch, drafters' rounds, and what the machine can do at best. `setting` says where it holds."""

    setting: Mapping[str, Any]  # target, device, dtype, versions: as in a trace's meta
    forward: Mapping[int, Spread]
    cached: int  # committed tokens in the cache while measuring
    made: str
    quick: bool
    machine: Mapping[str, float] = field(default_factory=dict)
    batch: Mapping[int, Mapping[int, Spread]] = field(default_factory=dict)
    drafters: Mapping[str, DrafterCosts] = field(default_factory=dict)
    floor: Mapping[str, Any] = field(default_factory=dict)

    def forward_ms(self, nodes: float) -> float:
        """Returns C(nodes), linear between measured sizes."""
        return interpolate({size: spread.median for size, spread in self.forward.items()}, nodes)

    def costs_of(self, name: str, checkpoint: str | None, sampled: bool) -> DrafterCosts | None:
        """Returns a drafter's entry, None when it was not measured or with another checkpoint."""
        found = self.drafters.get(costs_key(name, sampled))
        return found if found is not None and found.checkpoint == checkpoint else None


def interpolate(curve: Curve, at: float) -> float:
    """Returns the value at `at`: linear between the points, the first value below them, the last slope (never falling) above them."""
    if not curve:
        raise BadInput("There is nothing to interpolate: the curve has no points.")
    xs = sorted(curve)
    if at <= xs[0] or len(xs) == 1:
        return curve[xs[0]]
    right = next((x for x in xs if x >= at), xs[-1])
    left = xs[xs.index(right) - 1]
    slope = (curve[right] - curve[left]) / (right - left)
    return curve[right] + (at - right) * (max(0.0, slope) if at > right else slope)
