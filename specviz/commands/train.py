"""Train a draft head (medusa, eagle, ...) for a target; an interrupted training goes on where it stopped.

The hidden states come from --features, a folder that `features` wrote, or are captured first from --data.
Every hyper-parameter of the plan is an option; what belongs to one method is given as --knob name=value.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specviz.commands import base
from specviz.errors import BadInput
from specviz.sources import DEFAULT_TARGET


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("method", help="medusa, eagle, or another file in specviz/training/methods")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--features", type=Path, metavar="FOLDER", help="captured hidden states")
    source.add_argument("--data", type=Path, nargs="+", metavar="FILE", help="records to capture from first, into runs/features")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: models/TARGET/METHOD")
    parser.add_argument("--run", dest="run_folder", type=Path, metavar="FOLDER", help="log and state to resume from (default: runs/fit/METHOD)")
    parser.add_argument("--target", default=DEFAULT_TARGET, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--threads", type=base.positive, metavar="N", help="CPU threads (default: torch's own choice)")
    parser.add_argument(
        "--plan", action="append", default=[], metavar="NAME=VALUE", help="hyper-parameter, for example --plan epochs=4 --plan rate=0.001; repeatable"
    )
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE", help="of the method, for example --knob unroll=3; repeatable")


def run(args: argparse.Namespace) -> int:
    """Trains and prints the head's folder with its held-out acceptance."""
    from dataclasses import fields

    from specviz.training.features import capture
    from specviz.training.fit import Plan, fit

    out, log = base.consoles()
    base.use_threads(args.threads)
    plan, knobs = _pairs(args.plan, "--plan"), _pairs(args.knob, "--knob")
    known = [field.name for field in fields(Plan)]
    if unknown := [name for name in plan if name not in known]:
        raise BadInput(f"The plan has no {unknown[0]!r}. It has: {', '.join(known)}.")

    def say(text: str) -> None:
        log.print(text, markup=False)

    features = args.features or capture(args.data, Path("runs/features"), target=args.target, say=say).folder
    fitted = fit(args.method, features, target=args.target, out=args.out, run=args.run_folder, plan=Plan(**plan), knobs=knobs, say=say)
    depths = " ".join(f"{share:.3f}" for share in fitted.acceptance)
    out.print(f"{fitted.folder}: chain tau {fitted.chain_tau:.3f} on held-out answers, acceptance per depth {depths}", markup=False, soft_wrap=True)
    return 0


def _pairs(texts: list[str], option: str) -> dict[str, Any]:
    """Returns {name: value} of NAME=VALUE texts; a value is read as JSON where it is JSON, else it is text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise BadInput(f"{option} {text!r} is not NAME=VALUE, for example {option} epochs=4.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
