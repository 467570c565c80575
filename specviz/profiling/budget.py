"""`auto`: from a head's report and this machine's costs to the number of nodes that a run verifies per round."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specviz.analysis.budget import Budget, choose, taus_of
from specviz.analysis.head_report import HeadReport, load_report
from specviz.drafters.heads import HeadDrafter
from specviz.errors import BadFile, Missing
from specviz.profiling.measure import costs_here, known_profile
from specviz.profiling.rounds import checkpoint_of
from specviz.say import Say, silent

if TYPE_CHECKING:
    from specviz.drafters.base import Drafter
    from specviz.target import Target


def auto_budget(target: Target, drafter: Drafter, temperature: float, fallback: int, say: Say = silent) -> Budget:
    """Returns the budget for this drafter here, measuring what is missing; `fallback` nodes with the reason when its report cannot tell."""
    report, why_not = usable_report(target, drafter)
    if report is None:
        return Budget(fallback, why_not)
    profile, costs = costs_here(target, drafter, temperature > 0.0, say)
    if not any(nodes > 1 for nodes in costs.rounds):
        return Budget(fallback, f"no round of {drafter.name} could be measured here, as this target ends its texts at once: the drafter's default is used.")
    budget = choose(taus_of(report, temperature), profile, costs)
    unknown = temperature > 0.0 and not report.sampled
    return replace(budget, why=f"{budget.why}; acceptance above temperature 0 was not measured, so that of temperature 0 was taken") if unknown else budget


def usable_report(target: Target, drafter: Drafter) -> tuple[HeadReport | None, str]:
    """Returns (the report of exactly these weights, ""), or (None, the reason)."""
    name = drafter.name
    if not isinstance(drafter, HeadDrafter):
        return None, f"{name} has no trained head and so no report: the drafter's default is used."
    try:
        report = load_report(drafter.folder)
    except (Missing, BadFile) as problem:
        return None, f"{problem} The drafter's default is used."
    if report.method != drafter.config.method:
        return None, f"The report beside the {name} head is of a {report.method!r} head: the drafter's default is used. Make the report again."
    if report.checkpoint != checkpoint_of(drafter):
        return None, f"The report beside the {name} head belongs to another checkpoint: the drafter's default is used. Make the report again."
    if report.target.weights != target.fingerprint.weights:
        return None, f"The report of the {name} head was made with another target ({report.target.name}): the drafter's default is used."
    if not taus_of(report, 0.0):
        return None, f"The report of the {name} head holds no tree that grows: the drafter's default is used."
    return report, ""


def must_measure(target: Target, drafter: Drafter, temperature: float) -> bool:
    """True when `auto_budget` would have to measure this machine first, which takes some seconds."""
    if usable_report(target, drafter)[0] is None:
        return False
    profile = known_profile(target)
    return profile is None or profile.costs_of(drafter.name, checkpoint_of(drafter), temperature > 0.0) is None
