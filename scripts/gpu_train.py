"""Trains a head of every method on a GPU within a time limit: distil, capture features, fit; the heads come back as one archive in parts.

Answers are written until their share of the limit is spent, and added to the records of --data. All methods are fitted at the
same time, one process each, and a second round fits parts of the data for the learning curves. OUT gets train.json, the new
records (records.jsonl.gz) and heads.tar.part0, part1 ... with heads and logs; everything else stays in a scratch folder.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.errors import SpecvizError
from specviz.record import device_name
from specviz.sources import DEFAULT_TARGET, locate
from specviz.target import Target, pick_device
from specviz.training.curves import LOG, MARK, RESULT
from specviz.training.data import read_records
from specviz.training.dataset import Dataset
from specviz.training.distil import Writing, distil
from specviz.training.features import Capture, capture
from specviz.training.fit import freeze
from specviz.training.pipeline import find_methods

PART, MOST_PARTS = 15 << 20, 6  # bytes of a file, files beside train.json and the records
SHARES = (0.125, 0.25)  # of the data, for the learning curves
SLOWER = 1.5  # their fits are more at a time, and share the device
PLAN = {"tokens": 8192, "rate": 1e-3, "warm_up": 60, "clip": 1.0, "epochs": 40, "measure_every": 400, "save_every": 10**6}
TINY_PLAN = {"tokens": 512, "warm_up": 2, "held_out": 0.3, "draft_vocab": 256, "epochs": 1, "stop_after": 2}
WRITING = Writing(temperatures=(0.0, 0.0, 0.0, 0.7, 1.0), max_new_tokens=224, batch=512, per_shard=4096)
TINY_WRITING = Writing(temperatures=(0.0,), max_new_tokens=12, prompt_tokens=64, batch=16, per_shard=16)


@dataclass(frozen=True)
class Fit:
    """One fit: a method, the share of the data, knobs METHOD.NAME=VALUE, and what tells its folder from the others'."""

    method: str
    share: float
    knobs: tuple[str, ...] = ()
    suffix: str = ""

    @property
    def label(self) -> str:
        return self.method + (self.suffix or ("" if self.share >= 1.0 else f"{MARK}{self.share:g}"))


def main() -> int:
    """Runs the parts, prints what each took, writes the results."""
    args = read_arguments()
    started = time.time()
    names = args.methods.split(",") if args.methods else list(find_methods())
    work = Path(args.work or tempfile.mkdtemp(prefix="specviz-train-"))
    args.out.mkdir(parents=True, exist_ok=True)
    target = Target.load(args.target)
    record: dict[str, Any] = {"device": device_name(target.device), "dry_run": target.device.type != "cuda", "graphs": target.graphs.mode}
    print(f"{record['device']}, graphs {record['graphs']}, methods {', '.join(names)}, loaded after {time.time() - started:.0f} s", flush=True)
    written = write_answers(target, work / "distil", args)
    save_records(written, args.out / "records.jsonl.gz")
    record["distil"] = told(started, shards=len(written), answer_tokens=sum(len(one.answer) for one in read_records(written)))
    del target
    begun = time.time()
    found = capture([*args.data, *written], work / "features", target=args.target, taps=args.taps, shards=1 if args.tiny else 8, tokens_per_batch=16384)
    teach(found, args)
    record["features"] = told(begun, answer_tokens=sum(len(one.answer) for shard in found.done() for one in found.records(shard)))
    for shares in ((1.0,), SHARES)[: 1 if args.fit_seconds < 60 and not args.tiny else 2]:
        begun = time.time()
        fits = [Fit(name, share, knobs_of(name, args)) for name in names for share in shares]
        if shares != (1.0,):
            fits += [Fit(name, max(shares), (*knobs_of(name, args), knob), f"-{knob}") for knob in args.variant for name in (knob.partition(".")[0],)]
        failed = fit_all(fits, found, work, args)
        record.setdefault("fits", []).append(told(begun, shares=shares, failed=failed))
        pack(work, args.out)
        (args.out / "train.json").write_text(json.dumps(record | {"seconds": round(time.time() - started, 1)}, indent=1) + "\n")
    print(f"saved {args.out}/train.json and {len(names)} heads after {time.time() - started:.0f} s")
    return 1 if any(one["failed"] for one in record["fits"]) else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--target", default=DEFAULT_TARGET)
    parser.add_argument("--methods", help="only these, joined by commas (default: every file in specviz/training/methods)")
    parser.add_argument("--data", type=Path, nargs="*", default=[], metavar="FILE", help="records that were written before, to train on as well")
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], metavar="FILE", help="prompts to answer; none that an evaluation uses")
    parser.add_argument("--own", type=int, help="prompts that the target writes itself (default: as many as there is time for, without --prompts)")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything; sets the two below where they are not given")
    parser.add_argument("--distil-seconds", type=float, help="for writing answers (default: a fifth of the limit)")
    parser.add_argument("--fit-seconds", type=float, help="for each whole fit (default: two fifths of the limit)")
    parser.add_argument("--taps", type=int, nargs="+", help="states to capture (default: those of every method)")
    parser.add_argument("--plan", action="append", default=[], metavar="NAME=VALUE", help="hyper-parameter for every method, for example draft_vocab=16384")
    parser.add_argument("--knob", action="append", default=[], metavar="METHOD.NAME=VALUE", help="of one method, for example eagle.unroll=4")
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="METHOD.NAME=VALUE",
        help="fit this method on the largest share of the data with this knob as well, to compare",
    )
    parser.add_argument("--work", help="scratch folder; what it holds of an earlier run is used again (default: a new one)")
    parser.add_argument("--tiny", action="store_true", help="a few answers and steps, to see that it works")
    args = parser.parse_args()
    args.distil_seconds = args.limit / 5 if args.distil_seconds is None else args.distil_seconds
    args.fit_seconds = args.limit * 2 / 5 if args.fit_seconds is None else args.fit_seconds
    return args


def write_answers(target: Target, folder: Path, args: argparse.Namespace) -> list[Path]:
    """Lets the target answer prompts, a shard at a time, until their time is spent; one shard at least."""
    writing = TINY_WRITING if args.tiny else WRITING
    begun, shards = time.time(), list[Path]()
    endless = args.own is None and not args.prompts
    while not shards or (not args.tiny and (time.time() - begun) * (len(shards) + 1) / len(shards) < args.distil_seconds):
        own = (len(shards) + 1) * writing.per_shard if endless else args.own or 0
        before = len(shards)
        shards = distil(target, args.prompts, folder, own=own, writing=writing, most=before + 1)
        if len(shards) == before:
            break
    return shards


def save_records(shards: Sequence[Path], out: Path) -> None:
    with gzip.open(out, "wt", encoding="utf-8") as lines:
        for shard in shards:
            lines.write(shard.read_text(encoding="utf-8"))


def teach(found: Capture, args: argparse.Namespace) -> None:
    """Computes the target's distributions once, before several fits want them at the same time."""
    plan = plan_of(args, 1.0)
    frozen = freeze(Path(locate(args.target)), [found], int(plan.get("draft_vocab", 8192)))
    Dataset([found], (), frozen.vocabulary, len(frozen.embedding), float(plan.get("held_out", 0.05))).teach(frozen.rows.to(pick_device()[0]))


def plan_of(args: argparse.Namespace, share: float) -> dict[str, Any]:
    """Returns the plan of a fit on a share of the data, whose time is that share of a whole fit's."""
    given = {name: json.loads(value) for name, _, value in (text.partition("=") for text in args.plan)}
    usual = TINY_PLAN if args.tiny else PLAN | {"within": args.fit_seconds * (share if share >= 1.0 else SLOWER * share)}
    return usual | given | ({"data_share": share} if share < 1.0 else {})


def knobs_of(name: str, args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(knob for knob in args.knob if knob.startswith(f"{name}."))


def fit_all(fits: Sequence[Fit], found: Capture, work: Path, args: argparse.Namespace) -> list[str]:
    """Runs all fits at the same time, each in a process with a log of its own; returns those that failed."""
    running = {}
    for one in fits:
        run, plan = work / "fit" / one.label, plan_of(args, one.share)
        out = work / "heads" / one.method if one.share >= 1.0 else run / "head"
        run.mkdir(parents=True, exist_ok=True)
        options = [part for key, value in plan.items() for part in ("--plan", f"{key}={json.dumps(value)}")]
        options += [part for knob in one.knobs for part in ("--knob", knob.partition(".")[2])]
        command = [sys.executable, "-m", "specviz", "train", one.method, "--target", args.target, "--features", str(found.folder)]
        command += ["--out", str(out), "--run", str(run), *options]
        with (run / "output.txt").open("w") as log:
            running[one.label] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    failed = [label for label, process in running.items() if process.wait()]
    for label in running:
        lines = (work / "fit" / label / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        print(f"{label}:", *(lines[-12:] if label in failed else lines[-1:]), sep="\n  ", flush=True)
    return failed


def pack(work: Path, out: Path) -> None:
    """Writes heads, logs and results into heads.tar.part0, part1 ... of at most PART bytes; `cat heads.tar.part* | tar x` unpacks them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for head in sorted((work / "heads").glob("*")):
            tar.add(head, arcname=f"heads/{head.name}")
        for name in (LOG, RESULT, "output.txt"):
            for path in sorted((work / "fit").glob(f"*/{name}")):
                tar.add(path, arcname=str(path.relative_to(work)))
    data = packed.getvalue()
    parts = [out / f"heads.tar.part{number}" for number in range(-(-len(data) // PART))]
    for number, part in enumerate(parts):
        part.write_bytes(data[number * PART : (number + 1) * PART])
    if len(parts) > MOST_PARTS:
        print(f"heads and logs make {len(parts)} files, more than the {MOST_PARTS} that come back from every device machine", flush=True)


def told(begun: float, **more: Any) -> Mapping[str, Any]:
    record = {"seconds": round(time.time() - begun, 1), **more}
    print(record, flush=True)
    return record


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SpecvizError as problem:
        raise SystemExit(f"gpu_train: {problem}") from None
