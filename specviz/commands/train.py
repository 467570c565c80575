"""Train a draft head (medusa, eagle, ...) for a target, or with `all` every head from prompts to reports; interrupted work goes on.

train METHOD   from --features, a folder that `features` wrote, or from --data, whose states are captured first
train all      distil, capture, train and report, running only what is missing: the step after a fine-tune
Every hyper-parameter of the plan is an option; what belongs to one method is given as --knob name=value (with all: METHOD.name=value).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.commands import base
from specviz.errors import BadInput
from specviz.say import Say
from specviz.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.training.fit import Plan

ALL = "all"
SHARES = (0.125, 0.25, 0.5)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("method", help="medusa, eagle, or another file in specviz/training/methods; or all")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--features", type=Path, nargs="+", metavar="FOLDER", help="captured hidden states; several folders count as one")
    source.add_argument("--data", type=Path, nargs="+", metavar="FILE", help="records to capture from first, into runs/features")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: models/TARGET/METHOD; with all: a folder per method below it")
    parser.add_argument("--run", dest="run_folder", type=Path, metavar="FOLDER", help="log and state to resume from (default: runs/fit/METHOD)")
    parser.add_argument(
        "--plan", action="append", default=[], metavar="NAME=VALUE", help="hyper-parameter, for example --plan epochs=4 --plan rate=0.001; repeatable"
    )
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE", help="of the method, for example --knob unroll=3; repeatable")
    parser.add_argument("--start", type=Path, metavar="FOLDER", help="an earlier head of this method and these sizes to begin from")
    parser.add_argument("--learning-curve", action="store_true", help="train on 1/8, 1/4 and 1/2 of the data too, for the report's learning curve")
    parser.add_argument("--show-batch", action="store_true", help="print the first batch with its loss mask, and train nothing")
    every = parser.add_argument_group("train all")
    every.add_argument("--prompts", type=Path, nargs="*", default=[], metavar="FILE", help="prompts that the target answers; none that an evaluation uses")
    every.add_argument("--own", type=base.count, default=0, metavar="N", help="prompts that the target writes itself (default: %(default)s)")
    every.add_argument("--answer-tokens", type=base.positive, metavar="N", help="longest answer that the target writes (default: 300)")
    every.add_argument("--methods", metavar="NAMES", help="separated by commas (default: every one there is)")
    every.add_argument("--report-prompts", type=Path, metavar="FILE", help="prompts of the reports (default: those held out of training)")
    every.add_argument("--max-new-tokens", type=base.positive, default=128, metavar="N", help="per prompt of the reports (default: %(default)s)")
    every.add_argument("--eval-results", type=Path, metavar="FILE", help="JSON object of names and numbers to show beside tau")
    every.add_argument("--work", type=Path, default=Path("runs/all"), metavar="FOLDER", help="for what is written on the way (default: %(default)s)")
    base.add_target_options(parser)


def run(args: argparse.Namespace) -> int:
    """Trains and prints the head's folder with its held-out acceptance; with `all` a table of every head's tau."""
    out, log = base.consoles()
    base.use_threads(args.threads)
    args.target = args.target or Settings.from_env().target

    say = base.teller(log)
    if args.method == ALL:
        return _train_all(args, out, log, say)
    if not args.features and not args.data:
        raise BadInput("What shall be learned from? Give --features FOLDER, or --data FILE with distilled records.")
    if args.show_batch:
        return _show_batch(args, out)
    return _train_one(args, out, say)


def _train_one(args: argparse.Namespace, out: Console, say: Say) -> int:
    from specviz.training.features import capture
    from specviz.training.fit import fit
    from specviz.training.method_knobs import check_knobs
    from specviz.training.pipeline import check_methods, train_shares

    plan, knobs = _plan(args), pairs(args.knob, "--knob")
    check_methods([args.method])
    check_knobs(args.method, knobs)
    for place in filter(None, (args.out, args.run_folder)):
        base.output_folder(place)
    folder = args.run_folder or Path("runs/fit") / _run_name(args.method, plan)
    # a fit on a part of the data is for the learning curve: it must not take the place of the head that is used
    place = args.out or (folder / "head" if plan.data_share < 1.0 else None)
    features = args.features or [capture(args.data, Path("runs/features"), target=args.target, say=say).folder]
    if args.learning_curve:
        train_shares(args.method, features, SHARES, target=args.target, run=folder, plan=plan, knobs=knobs, start=args.start, say=say)
    fitted = fit(args.method, features, target=args.target, out=place, run=folder, plan=plan, knobs=knobs, start=args.start, say=say)
    depths = " ".join(f"{share:.3f}" for share in fitted.acceptance)
    out.print(f"{fitted.folder}: chain tau {fitted.chain_tau:.3f} on held-out answers, acceptance per depth {depths}", markup=False, soft_wrap=True)
    return 0


def _run_name(method: str, plan: Plan) -> str:
    from specviz.training.curves import MARK

    return method if plan.data_share >= 1.0 else f"{method}{MARK}{plan.data_share:g}"


def _show_batch(args: argparse.Namespace, out: Console) -> int:
    from specviz.commands.show_batch import print_batch
    from specviz.sources import local_folder
    from specviz.strings import Strings
    from specviz.training.data import read_records
    from specviz.training.features import open_captures
    from specviz.training.loss_mask import first_batch, read_target
    from specviz.training.pipeline import check_methods

    check_methods([args.method])
    place = local_folder(args.target)
    captures = open_captures(args.features or (), place)
    records = [record for one in captures for shard in one.done() for record in one.records(shard)] if captures else read_records(args.data)
    config, tokenizer = read_target(place)
    print_batch(out, first_batch(records, config, _plan(args)), Strings(tokenizer).text)
    return 0


def _train_all(args: argparse.Namespace, out: Console, log: Console, say: Say) -> int:
    from dataclasses import replace

    from specviz.commands.show_report import evaluation_table
    from specviz.sources import local_folder, short_name
    from specviz.training.card import read_evaluation
    from specviz.training.distil import Writing
    from specviz.training.pipeline import Order, train_all

    if args.features or args.run_folder or args.show_batch or args.start:
        raise BadInput("`train all` captures features and keeps its own run folders: give it --prompts or --data, and --start and --show-batch to one method.")
    for place in filter(None, (args.out, args.work)):
        base.output_folder(place)
    writing = Writing() if args.answer_tokens is None else replace(Writing(), max_new_tokens=args.answer_tokens)
    order = Order(
        short_name(args.target),
        local_folder(args.target),
        prompts=tuple(args.prompts),
        own=args.own,
        data=tuple(args.data or ()),
        methods=tuple(name.strip() for name in args.methods.split(",")) if args.methods else (),
        plan=_plan(args),
        knobs=_knobs_by_method(args.knob),
        writing=writing,
        shares=SHARES if args.learning_curve else (),
        report_prompts=args.report_prompts,
        max_new_tokens=args.max_new_tokens,
        evaluation=read_evaluation(args.eval_results) if args.eval_results else None,
        out=args.out,
        work=args.work,
    )
    reports = train_all(order, lambda: base.load_target(args, log), say)
    out.print(evaluation_table(reports))
    out.print(f"heads in {order.heads}", markup=False, soft_wrap=True)
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    from specviz.training.fit import Plan

    given, known = pairs(args.plan, "--plan"), [field.name for field in fields(Plan)]
    if unknown := [name for name in given if name not in known]:
        raise BadInput(f"The plan has no {unknown[0]!r}. It has: {', '.join(known)}.")
    return Plan(**given)


def _knobs_by_method(texts: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        method, dot, rest = text.partition(".")
        if not dot or not method.isidentifier():
            raise BadInput(f"--knob {text!r} names no method. With `all` a knob is METHOD.NAME=VALUE, for example --knob eagle.unroll=4.")
        given = pairs([rest], "--knob")
        if twice := sorted(set(given) & set(found.get(method, {}))):
            raise BadInput(f"--knob gives '{method}.{twice[0]}' twice. Give it once.")
        found.setdefault(method, {}).update(given)
    return found


def pairs(texts: list[str], option: str) -> dict[str, Any]:
    """Returns {name: value} of NAME=VALUE texts; a value is read as JSON where it is JSON, else it is text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise BadInput(f"{option} {text!r} is not NAME=VALUE, for example {option} epochs=4.")
        if name in found:
            raise BadInput(f"{option} gives {name!r} twice. Give it once.")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found
