"""Trains a head of every method on a GPU within a time limit: distil, capture features, fit; the heads come back as one archive in parts.

Each part gets a share of the limit. Answers are written until their share is spent; how many epochs a fit makes follows from a
few measured steps. OUT gets train.json and heads.tar.part0, part1 ..., written again after every head; everything else stays in
a scratch folder.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specviz.errors import SpecvizError
from specviz.record import device_name
from specviz.sources import DEFAULT_TARGET
from specviz.target import Target
from specviz.training.data import read_records
from specviz.training.distil import Writing, distil
from specviz.training.features import capture
from specviz.training.fit import Fitted, Plan, fit
from specviz.training.pipeline import find_methods
from specviz.training.state import PROGRESS

SHARES = {"distil": 0.3, "features": 0.1, "fit": 0.5}  # of the limit; the rest is loading
PART, MOST_PARTS = 15 << 20, 7  # bytes of a file, files beside train.json
PROBE = 60  # steps that tell what a step costs
MOST_EPOCHS = 40
USUAL = (Writing(batch=256, per_shard=1024), Plan(tokens=8192, rate=1e-3, warm_up=50, measure_every=10**9, save_every=10**9))
TINY = (
    Writing(temperatures=(0.0,), max_new_tokens=12, prompt_tokens=64, batch=16, per_shard=16),
    Plan(tokens=512, warm_up=2, held_out=0.3, draft_vocab=256, measure_every=10**9, save_every=10**9),
)


def main() -> int:
    """Runs the three parts, prints what each took, writes train.json and the archive."""
    args = read_arguments()
    started = time.time()
    names = args.methods.split(",") if args.methods else list(find_methods())
    writing, plan = TINY if args.tiny else USUAL
    work = Path(args.work or tempfile.mkdtemp(prefix="specviz-train-"))
    args.out.mkdir(parents=True, exist_ok=True)
    target = Target.load(args.target)
    record: dict[str, Any] = {"device": device_name(target.device), "dry_run": target.device.type != "cuda", "graphs": target.graphs.mode}
    print(f"{record['device']}, graphs {record['graphs']}, methods {', '.join(names)}", flush=True)
    records = write_answers(target, work / "distil", writing, SHARES["distil"] * args.limit, 1 if args.tiny else 10**6)
    record["distil"] = told(started, shards=len(records), answer_tokens=sum(len(one.answer) for one in read_records(records)))
    del target
    begun = time.time()
    features = capture(records, work / "features", target=args.target, shards=1 if args.tiny else 8).folder
    record["features"] = told(begun)
    record["heads"], heads = {}, dict[str, Path]()
    for name in names:
        begun = time.time()
        left = args.limit - (begun - started)
        box = min(SHARES["fit"] * args.limit / len(names), left / (len(names) - len(record["heads"])) - 10.0)
        fitted = fit_within(name, features, work / name, plan, 1.0 if args.tiny else max(box, 5.0), args.target)
        heads[name] = fitted.folder
        pack(heads, args.out)
        record["heads"][name] = told(begun, steps=fitted.steps, chain_tau=fitted.chain_tau, acceptance=list(fitted.acceptance))
        (args.out / "train.json").write_text(json.dumps(record | {"seconds": round(time.time() - started, 1)}, indent=1) + "\n")
    print(f"saved {args.out}/train.json and {len(names)} heads after {time.time() - started:.0f} s")
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--methods", help="only these, joined by commas (default: every file in specviz/training/methods)")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--work", help="scratch folder; what it holds of an earlier run is used again (default: a new one)")
    parser.add_argument("--tiny", action="store_true", help="a few answers and steps, to see that it works")
    return parser.parse_args()


def write_answers(target: Target, folder: Path, writing: Writing, seconds: float, most: int) -> list[Path]:
    """Lets the target answer prompts of its own, a shard at a time, until `seconds` are spent; one shard at least."""
    begun, shards = time.time(), list[Path]()
    while not shards or (time.time() - begun) * (len(shards) + 1) / len(shards) < seconds:
        shards = distil(target, [], folder, own=(len(shards) + 1) * writing.per_shard, writing=writing)
        if len(shards) >= most:
            break
    return shards


def fit_within(name: str, features: Path, work: Path, plan: Plan, seconds: float, target: str) -> Fitted:
    """Fits with as many epochs as fit into `seconds`, going by a few measured steps."""
    trial = replace(plan, epochs=1, stop_after=PROBE)
    fit(name, features, target=target, out=work / "trial-head", run=work / "trial", plan=trial, say=lambda text: None)
    step, total = step_seconds(work / "trial"), json.loads((work / "trial" / PROGRESS).read_text())["total"]
    epochs = int(min(max(1, seconds / (step * total)), MOST_EPOCHS))
    print(f"{name}: {1000 * step:.0f} ms a step, {total} steps an epoch, {epochs} epochs in {seconds:.0f} s", flush=True)
    return fit(name, features, target=target, out=work / "head", run=work / "fit", plan=replace(plan, epochs=epochs))


def step_seconds(run: Path) -> float:
    """Returns what a step took in the second half of a short fit: the first ones load kernels."""
    ends = [json.loads(line)["seconds"] for line in (run / "log.jsonl").read_text().splitlines()]
    half = len(ends) // 2
    return float(max(ends[-1] - ends[half], 0.1) / max(len(ends) - 1 - half, 1))


def pack(heads: Mapping[str, Path], out: Path) -> list[Path]:
    """Writes the heads' folders into heads.tar.part0, part1 ... of at most PART bytes; `cat heads.tar.part* | tar x` unpacks them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, head in heads.items():
            tar.add(head, arcname=name)
    data = packed.getvalue()
    parts = [out / f"heads.tar.part{number}" for number in range(-(-len(data) // PART))]
    for number, part in enumerate(parts):
        part.write_bytes(data[number * PART : (number + 1) * PART])
    if len(parts) > MOST_PARTS:
        print(f"the heads of {', '.join(heads)} make {len(parts)} files, more than the {MOST_PARTS} that come back from every device machine", flush=True)
    return parts


def told(begun: float, **more: Any) -> dict[str, Any]:
    record = {"seconds": round(time.time() - begun, 1), **more}
    print(record, flush=True)
    return record


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SpecvizError as problem:
        raise SystemExit(f"gpu_train: {problem}") from None
