"""Runs a training step from a shell until the command line has its own: python -m specviz.training STEP ..."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    """Parses the step and its options, and runs it."""
    parser = argparse.ArgumentParser(prog="python -m specviz.training")
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("capture", help="store the target's hidden states")
    step.add_argument("--data", type=Path, nargs="+", required=True)
    step.add_argument("--out", type=Path, default=Path("runs/features"))
    step.add_argument("--shards", type=int, default=16)
    step = steps.add_parser("fit", help="train a head on captured features")
    step.add_argument("method")
    step.add_argument("--features", type=Path, required=True)
    step.add_argument("--out", type=Path)
    step.add_argument("--run", type=Path)
    step.add_argument("--plan", type=json.loads, default={}, help='JSON, for example {"epochs": 4, "rate": 0.001}')
    step.add_argument("--knobs", type=json.loads, default={}, help='JSON, for example {"unroll": 3}')
    step = steps.add_parser("distil", help="let the target write training data")
    step.add_argument("--prompts", type=Path, nargs="*", default=[], help="files that no evaluation uses")
    step.add_argument("--own", type=int, default=0, help="prompts that the target writes itself")
    step.add_argument("--out", type=Path, default=Path("runs/distil"))
    step.add_argument("--seed", type=int, default=0)
    step = steps.add_parser("report", help="measure a head on held-out records and write its model card")
    step.add_argument("spec", help="for example eagle@dynamic:nodes=24")
    step.add_argument("--features", type=Path, required=True)
    step.add_argument("--limit", type=int)
    step.add_argument("--measured", nargs="*", default=[], help="lines for the card about runs made elsewhere, a benchmark for example")
    step.add_argument("--no-card", action="store_true")
    given = parser.parse_args()
    if given.step == "capture":
        from specviz.training.features import capture

        capture(given.data, given.out, shards=given.shards)
    elif given.step == "fit":
        from specviz.training.fit import Plan, fit

        fit(given.method, given.features, out=given.out, run=given.run, plan=Plan(**given.plan), knobs=given.knobs)
    elif given.step == "distil":
        from specviz.target import Target
        from specviz.training.distil import Writing, distil

        distil(Target.load(), given.prompts, given.out, own=given.own, writing=Writing(seed=given.seed))
    elif given.step == "report":
        from specviz.target import Target
        from specviz.training.report import report

        report(given.spec, given.features, Target.load(), limit=given.limit, card=not given.no_card, measured=given.measured)


if __name__ == "__main__":
    main()
