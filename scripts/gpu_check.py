"""Does a CUDA device write the CPU's tokens? Every drafter, temperature 0 and 1 with keyed randomness, with CUDA graphs and without,
and with graphs for verification alone, drafting step by step; beyond the first 512 slots, and with two rows at once.

All run in float32 with TF32 off. Without CUDA this is a dry run: float64 on the CPU stands in for the device, and static shapes
without a graph for its graphs, which shows that the check works and nothing about a GPU; every line and the result file say
so. The file is written after every check, so that a run that is broken off keeps what it found. Exit status: 0 all equal
(near-ties are listed with their gap), 1 a difference that rounding does not explain, in the text or in the number of rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from gpu_compare import Check, Sides, every_check, line

from specviz import drafters
from specviz.bench import Plan
from specviz.build import PLAIN, build_rule, load_drafter, parse_spec
from specviz.errors import BadInput, Missing, NotCaptured, SpecvizError
from specviz.graphs.capture import capture
from specviz.prompts import BUILT_IN
from specviz.ready import ready_drafters
from specviz.record import device_name
from specviz.registry import discover
from specviz.sampling import Sampling
from specviz.sources import short_name
from specviz.target import Target

TREES = ("dynamic:nodes=8,depth=3,top_k=4", "dynamic:nodes=24")  # beside `auto`, which may choose to decode plainly


def main() -> int:
    """Runs the comparison, prints one line each, writes gpu_check.json; with --specs it only prints what can be measured here."""
    args = read_arguments()
    if args.specs:
        print(",".join(measured_specs(ready_drafters(short_name(args.target)))))
        return 0
    dry = not torch.cuda.is_available() or args.dry
    label = "DRY RUN (CPU float64 in the device's place): " if dry else ""
    started = time.time()
    sides = Sides.load(args.target, dry)
    device = sides.device
    print(f"{label}cpu float32 against {device_name(device.device)} {device.dtype}, graphs: {device.graphs.mode}", flush=True)
    names, left_out = runnable(sides.reference)
    specs = [parse_spec(spec) for spec in fixed_specs(chosen(names, args.drafters))]
    plans = [Plan(build_rule("rejection"), Sampling(temperature, seed=args.seed), args.tokens) for temperature in (0.0, 1.0)]
    told: dict[str, Any] = {"dry_run": dry, "left_out": left_out, "seed": args.seed, "complete": False}
    args.out.mkdir(parents=True, exist_ok=True)
    place, checks = args.out / "gpu_check.json", list[Check]()
    for check in every_check(sides, specs, BUILT_IN[: args.prompts], plans):
        checks.append(check)
        print(label + line(check), flush=True)
        write(place, told, device, checks, started)
    told["complete"] = True
    write(place, told, device, checks, started)
    if not dry:  # last: where it goes wrong, captures may be impossible from then on
        told["after_a_refused_capture"] = after_a_refused_capture(device.device)
        print(f"a capture after a refused one: {told['after_a_refused_capture']}")
        write(place, told, device, checks, started)
    failed, equal = sum(check.failed for check in checks), sum(check.equal and not check.failed for check in checks)
    print(f"{label}{equal} of {len(checks)} runs equal, {len(checks) - equal - failed} near-ties, {failed} failed; saved {place}")
    return 1 if failed else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--drafters", help="only these, joined by commas (default: every drafter that can run)")
    parser.add_argument("--prompts", type=int, default=1, help="built-in prompts for every drafter (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens of a run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="a dry run although there is CUDA")
    parser.add_argument("--specs", action="store_true", help="print the drafters that can be measured here, as a list for `bench --drafters`, and end")
    return parser.parse_args()


def runnable(target: Target) -> tuple[list[str], dict[str, str]]:
    """Returns the drafters that can be loaded for the target, and why the others cannot."""
    names, left_out = [], {}
    for name in discover(drafters):
        try:
            load_drafter(target, parse_spec(name))  # not built: that would measure this machine for `auto`
            names.append(name)
        except Missing as problem:
            left_out[name] = str(problem)
    return names, left_out


def chosen(names: Sequence[str], wanted: str | None) -> list[str]:
    """Returns the drafters of --drafters, all without it. Raises BadInput for one that cannot run here."""
    asked = list(names) if wanted is None else [name.strip() for name in wanted.split(",")]
    if missing := [name for name in asked if name not in names]:
        raise BadInput(f"--drafters {wanted!r}: {', '.join(missing)} cannot run here. Expected some of: {', '.join(names)}.")
    return asked


def measured_specs(names: Sequence[str]) -> list[str]:
    """Returns every drafter but the baseline with its defaults, and where it has a tree also with trees that are fixed."""
    known = discover(drafters)
    return [spec for name in names if name != PLAIN for spec in (name, *(f"{name}@{tree}" for tree in TREES if known[name].default_shape))]


def fixed_specs(names: Sequence[str]) -> list[str]:
    """Returns every drafter with its shape's own defaults: the same tree on every side, and nothing that has to be measured first."""
    known = discover(drafters)
    return [f"{name}@{known[name].default_shape}" if known[name].default_shape else name for name in names]


def write(place: Path, told: Mapping[str, Any], device: Target, checks: Sequence[Check], started: float) -> None:
    """Writes everything that is known by now."""
    record = {
        **told,
        "compared": ["cpu float32", f"{device.device} {device.dtype}"],
        "graphs": device.graphs.mode,
        "drafts_by_replay": sorted({check.drafter for check in checks if check.draft_graphs not in (None, "off")}),
        "notes": list(device.notes),
        "device": device_name(device.device),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]},
        "cuda": torch.version.cuda,
        "checks": [check.to_json() for check in checks],
        "failed": sum(check.failed for check in checks),
        "seconds": round(time.time() - started, 1),
    }
    place.write_text(json.dumps(record, indent=1) + "\n")


def after_a_refused_capture(device: torch.device) -> str:
    """Returns "captured" where a capture works after one that CUDA refused and the thread is on its own stream; else what went wrong."""
    before, x = torch.cuda.current_stream(device), torch.ones(3, device=device)
    try:
        capture(lambda x: x * x.sum().item(), {"x": x})  # reads a number on the host, which no graph can
        return "nothing was refused, so nothing is shown"
    except NotCaptured:
        pass
    if torch.cuda.current_stream(device) != before:
        return "the thread stayed on the stream of the capture"
    try:
        found = capture(lambda x: x * 2, {"x": x})(x=torch.full((3,), 5.0, device=device)).tolist()
    except (NotCaptured, RuntimeError) as problem:
        return f"refused too: {str(problem).splitlines()[0][:160]}"
    return "captured" if found == [10.0] * 3 else f"captured, but it computes {found}"


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SpecvizError as problem:
        raise SystemExit(f"gpu_check: {problem}") from None
