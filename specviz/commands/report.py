"""Measure a trained head on held-out text without running the target, and write its model card."""

from __future__ import annotations

import argparse
from pathlib import Path

from specviz.commands import base


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", help="drafter or spec, for example eagle@dynamic:nodes=24")
    parser.add_argument("--features", type=Path, required=True, metavar="FOLDER", help="captured hidden states")
    parser.add_argument("--limit", type=base.positive, metavar="N", help="use the first N held-out records")
    parser.add_argument(
        "--measured", action="append", default=[], metavar="TEXT", help="a line of real decoding for the card, for example of `bench`; repeatable"
    )
    parser.add_argument("--no-card", action="store_true", help="only measure, leave the head's README.md as it is")
    base.add_target_options(parser)


def run(args: argparse.Namespace) -> int:
    """Prints tau and acceptance per depth."""
    from specviz.training.report import report

    out, log = base.consoles()
    target = base.load_target(args, log)
    found = report(
        args.spec, args.features, target, limit=args.limit, card=not args.no_card, measured=args.measured, say=lambda text: log.print(text, markup=False)
    )
    depths = " ".join(f"{share:.3f}" for share in found.acceptance)
    out.print(f"tau {found.tau:.3f} over {found.rounds} rounds, acceptance per depth {depths}", markup=False)
    return 0
