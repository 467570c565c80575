"""Let the target write training data: it answers prompts of files, and prompts that it writes itself. Resumable."""

from __future__ import annotations

import argparse
from pathlib import Path

from specviz.commands import base


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], metavar="FILE", help="prompt files that no evaluation uses")
    parser.add_argument("--own", type=int, default=0, metavar="N", help="prompts that the target writes itself (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/distil"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--temperatures", type=float, nargs="+", default=[0.0, 0.0, 0.7, 1.0], metavar="T", help="dealt out in turn over the answers (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    base.add_target_options(parser)


def run(args: argparse.Namespace) -> int:
    """Writes shards of records into the folder; those that exist are kept."""
    from specviz.training.distil import Writing, distil

    out, log = base.consoles()
    target = base.load_target(args, log)
    writing = Writing(seed=args.seed, temperatures=tuple(args.temperatures))
    shards = distil(target, args.prompts, args.out, own=args.own, writing=writing, say=base.teller(log))
    out.print(f"{len(shards)} files of records in {args.out}", markup=False)
    return 0
