"""Measure a trained head and write its model card; or hold a report against an older one.

report SPEC --features FOLDER      tau on the answers that the fit held out
report METHOD --prompts FILE       the full report: all tree shapes, kinds of prompts, temperatures, confidence, curves
report --against OLD.json [NEW]    the release gate: exit status 3 when something fell by more than --max-drop or is gone
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.analysis.head_report import SIZES
from specviz.commands import base
from specviz.errors import BadInput
from specviz.say import Say

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.analysis.head_report import HeadReport
    from specviz.target import Target
    from specviz.training.card import HeldOut
    from specviz.training.report import Measures

FELL = 3  # exit status of the gate
SKIPS = ("checked", "sampled")
TEXTS = Path("runs/report")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", nargs="?", help="drafter or spec, for example eagle@dynamic:nodes=24; with --against: a method or the new report's file")
    parser.add_argument("--features", type=Path, nargs="+", metavar="FOLDER", help="captured hidden states, for tau on held-out answers")
    parser.add_argument("--limit", type=base.positive, metavar="N", help="use the first N prompts, with --out (without --prompts: held-out records)")
    parser.add_argument(
        "--measured", action="append", default=[], metavar="TEXT", help="a line of real decoding for the card, for example of `bench`; repeatable"
    )
    parser.add_argument("--no-card", action="store_true", help="only measure, leave README.md as it is")
    full = parser.add_argument_group("the full report")
    full.add_argument("--prompts", type=Path, metavar="FILE", help="prompts that no head was trained on; their `task` is the kind of prompt")
    full.add_argument("--max-new-tokens", type=base.positive, default=128, metavar="N", help="per prompt (default: %(default)s)")
    full.add_argument("--nodes", type=base.positive, nargs="+", metavar="N", help=f"sizes of growing trees (default: {' '.join(map(str, SIZES))})")
    full.add_argument("--check-prompts", type=base.positive, default=10, metavar="N", help="decoded for real at temperature 0 (default: %(default)s)")
    full.add_argument("--sample-prompts", type=base.positive, default=20, metavar="N", help="decoded for real at 0.7 and 1 (default: %(default)s)")
    full.add_argument("--skip", default="", metavar="PARTS", help="leave out real decoding: checked, sampled or both with a comma")
    full.add_argument("--fit", type=Path, metavar="FOLDER", help="log of the fit, for the curves (default: runs/fit/METHOD)")
    full.add_argument("--eval-results", type=Path, metavar="FILE", help="JSON object of names and numbers to show beside tau")
    full.add_argument("--out", type=Path, metavar="FOLDER", help="for report.json and README.md (default: the head's own folder)")
    gate = parser.add_argument_group("the release gate")
    gate.add_argument("--against", type=Path, metavar="OLD.json", help="compare with this report")
    gate.add_argument("--max-drop", type=float, default=0.05, metavar="SHARE", help="what tau, a depth or a kind of prompt may lose (default: %(default)s)")
    gate.add_argument("--allow-missing", action="store_true", help="pass although a number of the old report is not in the new one")
    base.add_target_options(parser)


def run(args: argparse.Namespace) -> int:
    """Measures, or compares; the gate's status is 0 or 3."""
    out, log = base.consoles()
    if args.against is not None:
        if args.prompts or args.features or args.out:
            raise BadInput("--against compares two reports and measures nothing. Give it without --prompts, --features and --out.")
        return _gate(args, out)
    if not args.spec:
        raise BadInput("Which head? Expected a method or spec, for example: report eagle --prompts FILE.")
    if args.prompts is None and args.features is None:
        raise BadInput("Give --prompts FILE for the full report, or --features FOLDER for tau on held-out answers.")
    _check_options(args)
    target = base.load_target(args, log)

    if args.prompts is None:
        _held_out(args, target, out)
    else:
        _full(args, target, out, base.teller(log))
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raises BadInput for options that would be ignored, and for places that cannot be written, before anything is measured."""
    if args.allow_missing:
        raise BadInput("--allow-missing belongs to the release gate. Give it together with --against OLD.json.")
    full = {"nodes": args.nodes, "skip": args.skip, "fit": args.fit, "eval-results": args.eval_results, "out": args.out}
    if args.prompts is None and (given := [name for name, value in full.items() if value]):
        raise BadInput(
            f"--{given[0]} belongs to the full report. Give --prompts FILE with it, or leave it out: --features alone gives tau on held-out answers."
        )
    if args.prompts is not None and args.limit and args.out is None:
        raise BadInput("--limit measures a part of the prompts, which would take the place of the head's own report. Give --out FOLDER with it.")
    if args.out is not None:
        base.output_folder(args.out)  # before the target is loaded


def _held_out(args: argparse.Namespace, target: Target, out: Console) -> None:
    from specviz.training.card import write_card

    held = _measure_held_out(args, target)
    found = held.found
    depths = " ".join(f"{share:.3f}" for share in found.acceptance)
    out.print(f"tau {found.tau:.3f} over {found.rounds} rounds, acceptance per depth {depths}", markup=False)
    if not args.no_card:
        write_card(held.head, held_out=held, measured=args.measured)


def _measure_held_out(args: argparse.Namespace, target: Target) -> HeldOut:
    from specviz.build import parse_spec, shaped
    from specviz.drafters.heads import HeadDrafter
    from specviz.training.card import HeldOut
    from specviz.training.report import held_out_replay, load_head_drafter, shown

    spec = parse_spec(args.spec)
    drafter = shaped(load_head_drafter(target, spec), spec)
    if not isinstance(drafter, HeadDrafter):
        raise BadInput(f"{args.spec} comes out as plain decoding on this machine. Name a tree, for example {spec.drafter}@dynamic:nodes=24.")
    found = held_out_replay(drafter, args.features, args.limit)
    return HeldOut(drafter.folder, shown(drafter), found)


def _full(args: argparse.Namespace, target: Target, out: Console, say: Say) -> None:
    from specviz.build import check_spec, parse_spec
    from specviz.commands.show_report import report_table
    from specviz.training.card import read_evaluation, save_report, write_card
    from specviz.training.fixed_text import fixed_text, read_questions
    from specviz.training.report import head_report, load_head_drafter

    evaluation = read_evaluation(args.eval_results) if args.eval_results else None
    spec, measures = check_spec(parse_spec(args.spec)), _measures(args)
    if args.nodes and (spec.shape or spec.shape_knobs):
        raise BadInput(f"{args.spec!r} names one tree, so --nodes has nothing to choose. Give --nodes with the drafter alone: {spec.drafter}.")
    folder = load_head_drafter(target, spec).folder  # before the target writes anything: a head that is not there is said at once
    base.output_folder(args.out or folder)
    questions = read_questions(target, args.prompts, args.limit)
    text = fixed_text(target, questions, args.prompts.name, max_new_tokens=args.max_new_tokens, out=TEXTS, say=say)
    fit = args.fit or Path("runs/fit") / spec.drafter
    report = head_report(target, spec, text, measures=measures, fit=fit, evaluation=evaluation, say=say)
    held = _measure_held_out(args, target) if args.features else None
    place = save_report(report, args.out or folder)
    if not args.no_card:
        write_card(folder, place.parent, held_out=held, measured=args.measured)
    out.print(report_table(report))
    out.print(str(place), markup=False, soft_wrap=True)


def _measures(args: argparse.Namespace) -> Measures:
    from specviz.shapes.base import MAX_NODES
    from specviz.training.report import Measures

    if args.nodes and max(args.nodes) > MAX_NODES:
        raise BadInput(f"--nodes {max(args.nodes)} is out of range. Expected 1 to {MAX_NODES}, the root included.")
    skipped = {part for part in args.skip.split(",") if part}
    if odd := skipped - set(SKIPS):
        raise BadInput(f"--skip {min(odd)!r} is not a part that can be left out. Expected: {', '.join(SKIPS)}.")
    sizes = tuple(args.nodes) if args.nodes else Measures().nodes
    return Measures(sizes, 0 if "checked" in skipped else args.check_prompts, 0 if "sampled" in skipped else args.sample_prompts)


def _gate(args: argparse.Namespace, out: Console) -> int:
    from specviz.analysis.gate import compare_reports
    from specviz.analysis.head_report import load_report
    from specviz.commands.show_report import print_comparison

    if not 0.0 <= args.max_drop < 1.0:
        raise BadInput(f"--max-drop {args.max_drop:g} is no share. Expected a number from 0 and below 1, for example 0.05.")
    old = load_report(args.against)
    new = load_report(_newer(args, old))
    found = compare_reports(old, new)
    print_comparison(out, old, new, found, args.max_drop)
    return FELL if found.fallen(args.max_drop) or (found.missing and not args.allow_missing) else 0


def _newer(args: argparse.Namespace, old: HeadReport) -> Path:
    """Returns where the new report lies: the file or folder that was named, else beside the head of the method."""
    from specviz.settings import Settings
    from specviz.sources import models_dir, short_name

    if args.spec and Path(args.spec).exists():
        return Path(args.spec)
    if args.spec and (args.spec.endswith(".json") or "/" in args.spec):
        raise BadInput(f"There is no report {args.spec}. Expected a file, a head's folder or the name of a method.")
    return models_dir() / short_name(args.target or Settings.from_env().target) / (args.spec or old.method)
