"""Capture the target's hidden states over training data once, so that heads train without running the target. Resumable."""

from __future__ import annotations

import argparse
from pathlib import Path

from specviz.commands import base
from specviz.sources import DEFAULT_TARGET


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, nargs="+", required=True, metavar="FILE", help="records that `distil` wrote, .jsonl or .jsonl.gz")
    parser.add_argument("--out", type=Path, default=Path("runs/features"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--shards", type=base.positive, default=16, metavar="N", help="default: %(default)s")
    parser.add_argument("--target", default=DEFAULT_TARGET, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--threads", type=base.positive, metavar="N", help="CPU threads (default: torch's own choice)")


def run(args: argparse.Namespace) -> int:
    """Writes the features and prints their folder, which `train` takes."""
    from specviz.training.features import capture

    out, log = base.consoles()
    base.use_threads(args.threads)
    found = capture(args.data, args.out, target=args.target, shards=args.shards, say=base.teller(log))
    out.print(str(found.folder), markup=False, soft_wrap=True)
    return 0
