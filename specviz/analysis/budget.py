"""The node budget: of the trees a head was measured with, the one that this machine turns into the most speed (modelled)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from specviz.analysis.head_report import MAIN_NODES, HeadReport
from specviz.analysis.profile import DrafterCosts, Profile, interpolate
from specviz.shapes.dynamic import MOST_GROWN

SHAPE = "dynamic"  # the shape whose entries of a report are compared


@dataclass(frozen=True)
class Choice:
    """One budget: tokens per round, and what a round costs in steps of plain decoding, by term."""

    nodes: int
    tau: float
    verify: float
    draft: float
    rest: float

    @property
    def cost(self) -> float:
        return self.verify + self.draft + self.rest

    @property
    def speedup(self) -> float:
        return self.tau / self.cost

    def to_json(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "tau": self.tau, "verify": self.verify, "draft": self.draft, "rest": self.rest, "speedup": self.speedup}


@dataclass(frozen=True)
class Budget:
    """What `auto` came to: the nodes to verify per round (1: plain decoding), why, and every budget that was weighed."""

    kind: ClassVar[str] = "modelled"
    nodes: int
    why: str
    speedup: float | None = None
    curve: tuple[Choice, ...] = field(default=())

    @property
    def plain(self) -> bool:
        return self.nodes == 1

    @property
    def text(self) -> str:
        """One line for a person: what was chosen, and the modelled speed-up where there is one."""
        return budget_text(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {"asked": "auto", "nodes": self.nodes, "speedup": self.speedup, "why": self.why, "curve": [choice.to_json() for choice in self.curve]}


def budget_text(record: Mapping[str, Any]) -> str:
    """Returns the line of a trace's budget record; the same words wherever it is shown."""
    nodes, speedup = record.get("nodes"), record.get("speedup")
    head = f"nodes=auto -> {nodes}"
    if nodes == 1:
        return f"{head}, plain decoding: {record.get('why', '')}"
    return f"{head} (modelled {speedup:.2f}x here)" if isinstance(speedup, (int, float)) else f"{head}: {record.get('why', '')}"


def taus_of(report: HeadReport, temperature: float) -> dict[int, float]:
    """Returns tau by nodes at this temperature; empty when the report holds no tree that grows.

    Above temperature 0 what a tree gains over one token shrinks by the share that the report measured at one size, linear
    between measured temperatures; where none was measured, the values of temperature 0 stand.
    """
    greedy = {one.nodes: one.tau for one in report.greedy if one.shape == SHAPE and 1 < one.nodes <= MOST_GROWN and one.tau >= 1.0}
    share = gain_share(report, greedy, temperature)
    return {nodes: 1.0 + (tau - 1.0) * share for nodes, tau in sorted(greedy.items())}


def gain_share(report: HeadReport, greedy: Mapping[int, float], temperature: float) -> float:
    """Returns the part of (tau - 1) that is left at this temperature: 1 at temperature 0 and where nothing was measured above it.

    tau itself would be the wrong thing to scale: a round always gives one token, so small trees would be put below 1.
    """
    if temperature <= 0.0:
        return 1.0
    points = {0.0: 1.0}
    for one in sorted(report.sampled, key=lambda one: one.nodes == MAIN_NODES):  # where several sizes were measured, the main one counts
        base = greedy.get(one.nodes)
        if base is not None and base > 1.0:
            points[one.temperature] = max(0.0, one.tau - 1.0) / (base - 1.0)
    xs = sorted(points)
    if temperature >= xs[-1]:
        return points[xs[-1]]
    right = next(x for x in xs if x >= temperature)
    left = xs[xs.index(right) - 1]
    return points[left] + (points[right] - points[left]) * (temperature - left) / (right - left)


def choose(taus: Mapping[int, float], profile: Profile, costs: DrafterCosts) -> Budget:
    """Returns the budget with the highest modelled speed-up, tau / ((C(nodes) + draft + rest) / plain step); plain decoding is one of them.

    The plain step is C(1) with the rule and commit of a single node, from the same measurements. A forward of fewer nodes never costs more: where a
    disturbed measurement says so, the lower number counts, or a speed-up above tau would come out.
    """
    draft = {nodes: one.ms["draft"].median for nodes, one in costs.rounds.items() if nodes != 1}
    rest = {nodes: one.rest for nodes, one in costs.rounds.items()}
    plain = min(spread.median for spread in profile.forward.values()) + interpolate(rest, 1)
    curve = tuple(
        Choice(nodes, tau, profile.forward_ms(nodes) / plain, interpolate(draft, nodes) / plain, interpolate(rest, nodes) / plain)
        for nodes, tau in sorted(taus.items())
    )
    best = max(curve, key=lambda choice: choice.speedup)
    if best.speedup <= 1.0:
        return Budget(1, f"every tree is modelled slower than that on this machine (the best, {best.nodes} nodes, {best.speedup:.2f}x)", 1.0, curve)
    return Budget(best.nodes, _why(best, curve), best.speedup, curve)


def _why(best: Choice, curve: Sequence[Choice]) -> str:
    others = ", ".join(f"{choice.nodes}: {choice.speedup:.2f}x" for choice in curve)
    return f"the highest modelled speed-up on this machine ({others})"
