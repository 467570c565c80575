"""Measure where the time goes on this machine: forwards by nodes and rows, drafters' rounds by phase, and the gap to what the hardware can do.

The result is also kept in the cache folder (SPECVIZ_CACHE), where `nodes=auto` and the app's cost chart read it.
Run it on a quiet machine: everything that runs beside it is measured too.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.commands import base
from specviz.errors import BadInput, Missing

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.analysis.profile import Profile
    from specviz.build import Spec
    from specviz.drafters.base import Drafter
    from specviz.profiling.measure import Plan
    from specviz.target import Target


MOST_REPEATS = 1000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=numbers, metavar="N,N", help="forward sizes to measure (default: 1 to 128; 1 is always among them)")
    parser.add_argument("--batch", type=numbers, metavar="B,B", help="rows of a forward (default: 1,2,4,8,16; 1 for none beside it)")
    parser.add_argument("--drafters", metavar="NAMES", help="drafters to measure, separated by commas (default: all that can run; none for no drafter)")
    parser.add_argument("--cached", type=base.positive, default=256, metavar="N", help="committed tokens in the cache meanwhile (default: %(default)s)")
    parser.add_argument("--repeats", type=repeats, metavar="N", help="measurements of each kind, after a warm-up (default: 9; quick: 4)")
    parser.add_argument("--quick", action="store_true", help="a few seconds: fewer sizes, one row, no bandwidth and peak; what nodes=auto measures by itself")
    base.add_target_options(parser)
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the profile to FILE, or print one JSON object and nothing else")


def numbers(text: str) -> tuple[int, ...]:
    """Returns whole numbers from 1 to 256, given with commas between them (an argparse type)."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 4 and 1 <= int(part) <= 256 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers from 1 to 256, such as 1,8,64")
    return tuple(sorted({int(part) for part in parts}))


def repeats(text: str) -> int:
    """Returns a whole number from 1 to MOST_REPEATS (an argparse type)."""
    if (value := base.positive(text)) > MOST_REPEATS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST_REPEATS} measurements of each kind")
    return value


def run(args: argparse.Namespace) -> int:
    """Measures, remembers and shows the profile."""
    place = base.output_file(args.json) if args.json not in (None, "-") else None
    specs = _specs(args.drafters)
    out, log = base.consoles()
    with base.only_json(args.json == "-"):
        from specviz.analysis.profile_file import to_json, write_profile

        target, plan = base.load_target(args, log), _plan(args)
        _check_fits(plan, target)
        profile = _measure(target, _load(target, specs, asked=args.drafters is not None, log=log), plan, log, place)
        if args.nodes is None:
            log.print(f"remembered in {write_profile(profile)}", markup=False)
        else:
            log.print("not remembered: nodes=auto needs the default sizes", markup=False)
    if args.json == "-":
        sys.stdout.write(base.dump(to_json(profile)))
    else:
        _print(out, profile)
    if place is not None:
        log.print(f"saved {place}", markup=False)
    return 0


def _specs(text: str | None) -> list[Spec]:
    """The drafters that were asked for, by name alone: their trees are measured at every budget."""
    from specviz import drafters
    from specviz.build import check_spec, parse_spec, split_specs
    from specviz.registry import discover

    if text == "none":
        return []
    names = discover(drafters) if text is None else split_specs(text)
    if not names:
        raise BadInput(f"--drafters {text!r} names no drafter. Expected names separated by commas, or none.")
    specs = [check_spec(parse_spec(part)) for part in names]
    shaped = next((spec for spec in specs if spec.shape or spec.shape_knobs), None)
    if shaped:
        raise BadInput(f"--drafters {shaped}: give the drafter without a shape. Its rounds are measured at every number of nodes.")
    return specs


def _load(target: Target, specs: list[Spec], *, asked: bool, log: Console) -> list[Drafter]:
    """Loads the drafters; one without a checkpoint is left out and said, unless it was asked for by name."""
    from specviz.build import load_drafter

    found = []
    for spec in specs:
        try:
            found.append(load_drafter(target, spec))
        except (Missing, BadInput) as problem:
            if asked:
                raise
            log.print(f"{spec.drafter} is left out: {problem}", markup=False, style="yellow")
    return found


def _plan(args: argparse.Namespace) -> Plan:
    from specviz.profiling.measure import QUICK, Plan

    plan = replace(QUICK if args.quick else Plan(), cached=args.cached)
    if args.nodes:
        sizes = tuple(sorted({1, *args.nodes}))
        plan = replace(plan, sizes=sizes, batch_sizes=sizes if plan.batch_sizes else (), budgets=[n for n in args.nodes if n > 1] or plan.budgets)
    if args.batch:
        plan = replace(plan, batches=args.batch, batch_sizes=plan.batch_sizes or plan.sizes)
    return replace(plan, repeats=args.repeats) if args.repeats else plan


def _check_fits(plan: Plan, target: Target) -> None:
    """Raises BadInput when the tokens in the cache and the largest forward are more than the target's context."""
    room = target.context - max((*plan.sizes, *plan.batch_sizes, *plan.budgets))
    if plan.cached > room:
        raise BadInput(f"--cached {plan.cached} does not fit: {target.name} has a context of {target.context} tokens. Expected 1 to {max(1, room)}.")


def _measure(target: Target, drafters: list[Drafter], plan: Plan, log: Console, place: Path | None) -> Profile:
    """Measures the forwards, then drafter by drafter; `place` is written after each, so that what is broken off loses nothing before it."""
    from rich.progress import Progress

    from specviz.analysis.profile_file import to_json
    from specviz.profiling.measure import measure, with_drafters

    with Progress(console=log) as bar:
        task = bar.add_task("forwards", total=plan.steps + len(drafters))
        profile = measure(target, plan, lambda: bar.advance(task))
        for drafter in (None, *drafters):
            if drafter is not None:
                bar.update(task, description=drafter.name, advance=1)
                profile = with_drafters(profile, target, [drafter], plan)
            if place is not None:
                base.write_record(place, to_json(profile))
    return profile


def _print(out: Console, profile: Profile) -> None:
    from specviz.commands.show_profile import profile_remarks, profile_tables

    for table in profile_tables(profile):
        out.print(table)
    for line in profile_remarks(profile):
        out.print(line, markup=False)
