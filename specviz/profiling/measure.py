"""The whole profile of one target on this machine, and what is remembered of it between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from specviz.analysis.floor import Machine, Sizes, draft_work, floor_record, forward_work, machine_of
from specviz.analysis.head_report import SIZES
from specviz.analysis.profile import DrafterCosts, Profile, Spread
from specviz.analysis.profile_file import read_profile, write_profile
from specviz.drafters.base import Drafter
from specviz.errors import BadFile, SpecvizError
from specviz.profiling.forward import committed, forward_costs
from specviz.profiling.machine import load_average, measure_machine, now, number_bytes, sizes_of
from specviz.profiling.rounds import checkpoint_of, drafter_costs
from specviz.record import describe_setting
from specviz.say import Say, silent
from specviz.target import Target


@dataclass(frozen=True)
class Plan:
    """What is measured: forward sizes, batch sizes, node budgets of drafters, and how often."""

    sizes: Sequence[int] = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
    batches: Sequence[int] = (1, 2, 4, 8, 16)
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32, 64)
    budgets: Sequence[int] = SIZES
    cached: int = 256
    repeats: int = 9
    patience: float = inf  # seconds after which few repeats are enough
    quick: bool = False

    @property
    def steps(self) -> int:
        """How often measuring the target says that it got on."""
        return self.repeats + 1 + (len([b for b in self.batches if b > 1]) * (self.repeats + 1)) + 1


# about five seconds on two CPU cores with the default target, a drafter's rounds included
QUICK = Plan(sizes=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64), batches=(), batch_sizes=(), repeats=4, patience=3.0, quick=True)


def measure(target: Target, plan: Plan, tick: Callable[[], None] = lambda: None) -> Profile:
    """Measures forwards by nodes and rows, and for a full plan the machine's best; drafters are added by `with_drafters`."""
    machine = None if plan.quick else measure_machine(target, plan.repeats)
    tick()
    cached = committed(target, plan.cached, max((*plan.sizes, *plan.batch_sizes)))
    forward = forward_costs(target, plan.sizes, repeats=plan.repeats, cached=cached, patience=plan.patience, tick=tick)
    batch = {
        rows: forward_costs(target, plan.batch_sizes, repeats=plan.repeats, cached=cached, batch=rows, tick=tick) for rows in sorted(plan.batches) if rows > 1
    }
    if batch and 1 in plan.batches:
        batch = {1: {nodes: forward[nodes] for nodes in plan.batch_sizes if nodes in forward}} | batch
    told = load_average() | ({} if machine is None else {"bandwidth_bytes_per_s": machine.bandwidth, "peak_flops_per_s": machine.peak})
    return Profile(
        describe_setting(target),
        forward,
        cached,
        now(),
        plan.quick,
        told,
        batch,
        {},
        {} if machine is None else _floor(target, machine, forward, batch, cached),
    )


def with_drafters(
    profile: Profile, target: Target, drafters: Iterable[Drafter], plan: Plan, *, sampled: bool = False, tick: Callable[[], None] = lambda: None
) -> Profile:
    """Returns the profile with the rounds of these drafters measured and, where the machine's best is known, their floor."""
    found = dict(profile.drafters)
    for drafter in drafters:
        costs = drafter_costs(target, drafter, plan.budgets, repeats=plan.repeats, sampled=sampled, patience=plan.patience)
        found[costs.key] = costs
        tick()
    floor = dict(profile.floor)
    if floor:
        machine, sizes = machine_of(profile.machine), sizes_of(target)
        floor["drafters"] = {key: _phase_floor(costs, machine, sizes, profile.cached) for key, costs in found.items()}
    return replace(profile, drafters=found, floor=floor)


def _floor(target: Target, machine: Machine, forward: Mapping[int, Spread], batch: Mapping[int, Mapping[int, Spread]], cached: int) -> dict[str, Any]:
    sizes = sizes_of(target)
    return {
        "weights": sizes.weights, "number_bytes": number_bytes(target.dtype),
        "forward": {str(n): floor_record(machine, forward_work(sizes, n, cached), spread.median) for n, spread in forward.items()},
        "batch": {str(rows): {str(n): floor_record(machine, forward_work(sizes, n, cached, rows), s.median) for n, s in row.items()} for rows, row in batch.items()},
    }  # fmt: skip


def _phase_floor(costs: DrafterCosts, machine: Machine, sizes: Sizes, cached: int) -> dict[str, Any]:
    """Returns the floor per phase and budget: verify as a forward, draft as its head's weights read once; the rest needs next to nothing."""
    return {
        str(nodes): {
            "verify": floor_record(machine, forward_work(sizes, max(1, round(one.nodes)), cached), one.ms["verify"].median),
            "draft": floor_record(machine, draft_work(costs.weights, sizes.number_bytes, one.drafted), one.ms["draft"].median),
        }
        for nodes, one in costs.rounds.items()
    }  # fmt: skip


# ---- what is remembered


def known_profile(target: Target, say: Say = silent) -> Profile | None:
    """Returns what an earlier run measured of this target here, None when there is nothing; a damaged file is said and left out."""
    try:
        return read_profile(describe_setting(target))
    except BadFile as problem:
        say(f"{problem} It is measured again.")
        return None


def quick_profile(target: Target, say: Say = silent) -> Profile:
    """Returns the profile of this target here: remembered, or measured now in a few seconds and remembered."""
    found = known_profile(target, say)
    if found is not None:
        return found
    say(f"Measuring this machine once: what a forward of {target.name} costs by its number of nodes.")
    return keep(measure(target, QUICK), say)


def costs_here(target: Target, drafter: Drafter, sampled: bool, say: Say = silent) -> tuple[Profile, DrafterCosts]:
    """Returns the profile and the drafter's costs in it; what is missing is measured now and remembered."""
    profile = quick_profile(target, say)
    costs = profile.costs_of(drafter.name, checkpoint_of(drafter), sampled)
    if costs is None:
        say(f"Measuring this machine once: what a round of {drafter.name} costs{' above temperature 0' if sampled else ''}.")
        profile = keep(with_drafters(profile, target, [drafter], QUICK, sampled=sampled), say)
        costs = profile.costs_of(drafter.name, checkpoint_of(drafter), sampled)
    assert costs is not None
    return profile, costs


def keep(profile: Profile, say: Say = silent) -> Profile:
    """Writes the profile for the next run; a folder that cannot be written to is said, and costs a measurement next time."""
    try:
        write_profile(profile)
    except SpecvizError as problem:
        say(str(problem))
    return profile
