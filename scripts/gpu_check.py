"""Does a CUDA device write the CPU's tokens? Every drafter, temperature 0 and 1 with keyed randomness; then a short bench.

Both run in float32 with TF32 off. Without CUDA this is a dry run: float64 on the CPU stands in for the device, which shows
that the check works and nothing about a GPU; every line and the result file say so. Exit status: 0 all equal (near-ties are
listed with their gap), 1 a difference that rounding does not explain.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from specviz import drafters
from specviz.analysis.compare import Difference, first_difference
from specviz.analysis.versus import Pair, Run, result
from specviz.bench import BASELINE, Bench, Plan, measure_gap
from specviz.build import build_rule, parse_spec
from specviz.errors import SpecvizError
from specviz.prompts import BUILT_IN, Prompt
from specviz.record import device_name
from specviz.registry import discover
from specviz.sampling import Sampling
from specviz.target import Target

# How far rounding may move a decision in float32: the tolerance of the logit tests, and what it can move a cumulative sum.
NEAR_TIE = {"logit": 1e-3, "probability": 1e-4}


@dataclass(frozen=True)
class Check:
    """One drafter on one prompt at one temperature: device against reference, and device against plain decoding on the device.

    plain_compared is False where children were sampled from the draft: then the text need not be plain decoding's.
    """

    drafter: str
    temperature: float
    prompt: str
    new_tokens: int
    rounds: tuple[int, int]  # reference, device
    difference: Difference | None
    plain_compared: bool
    plain_difference: Difference | None

    @property
    def equal(self) -> bool:
        return self.difference is None and self.plain_difference is None

    @property
    def failed(self) -> bool:
        return not all(found is None or is_near_tie(found) for found in (self.difference, self.plain_difference))


def is_near_tie(found: Difference) -> bool:
    """True where rounding explains a difference: the decision lay that close."""
    return found.gap is not None and found.gap <= NEAR_TIE[found.unit]


def main() -> int:
    """Runs the comparison and the bench, prints one line each, writes gpu_check.json."""
    args = read_arguments()
    dry = not torch.cuda.is_available()
    label = "DRY RUN, no CUDA here (CPU float64 in its place): " if dry else ""
    started = time.time()
    reference = Target.load(args.target, "cpu", "float32")
    device = Target.load(args.target, "cpu", "float64") if dry else Target.load(args.target, "cuda", "float32")
    print(f"{label}cpu float32 against {device_name(device.device)} {device.dtype}", flush=True)
    names = [name for name in discover(drafters) if not args.drafters or name in args.drafters.split(",")]
    prompts = BUILT_IN[: args.prompts]
    checks = [check for temperature in (0.0, 1.0) for check in compare_devices(reference, device, names, prompts, plan_for(temperature, args), label)]
    bench = measure(reference if dry else device, names, prompts, plan_for(0.0, args), label)
    failed, equal = sum(check.failed for check in checks), sum(check.equal for check in checks)
    record = {
        "dry_run": dry,
        "compared": ["cpu float32", f"{device.device} {device.dtype}"],
        "device": device_name(device.device),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]},
        "cuda": torch.version.cuda,
        "seed": args.seed,
        "checks": [{**asdict(check), "equal": check.equal, "failed": check.failed} for check in checks],
        "failed": failed,
        "bench": {"device": "cpu" if dry else str(device.device), "drafters": bench},
        "seconds": round(time.time() - started, 1),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    place = args.out / "gpu_check.json"
    place.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{label}{equal} of {len(checks)} runs equal, {len(checks) - equal - failed} near-ties, {failed} failed; saved {place}")
    return 1 if failed else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--target", default="smollm2-135m-instruct")
    parser.add_argument("--drafters", help="only these, joined by commas (default: every drafter)")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def plan_for(temperature: float, args: argparse.Namespace) -> Plan:
    return Plan(build_rule("rejection"), Sampling(temperature, seed=args.seed), args.tokens)


def compare_devices(reference: Target, device: Target, names: list[str], prompts: tuple[Prompt, ...], plan: Plan, label: str) -> list[Check]:
    """Decodes every prompt with every drafter on both sides and compares the tokens."""
    specs = [parse_spec(name) for name in names]
    here, there = Bench(reference, specs, plan), Bench(device, specs, plan)
    checks = []
    for prompt in prompts:
        plain = there.run(there.baseline, prompt, plan.max_new_tokens)
        for name in names:
            a, b = here.run(here.drafters[name], prompt, plan.max_new_tokens), there.run(there.drafters[name], prompt, plan.max_new_tokens)
            comparable = plan.sampling.greedy or not b.sampled
            apart = explain(there, plain, b) if comparable else None
            rounds = (a.summary.rounds, b.summary.rounds)
            checks.append(Check(name, plan.sampling.temperature, prompt.name, len(b.tokens), rounds, explain(here, a, b), comparable, apart))
            say(checks[-1], label)
    return checks


def explain(bench: Bench, baseline: Run, other: Run) -> Difference | None:
    """Returns where two runs of one prompt part, with how close the decision was for the bench's target; None when they are equal."""
    found = first_difference(baseline.tokens, other.tokens)
    if found is None:
        return None
    return measure_gap(bench.target, [*bench.ids(baseline.prompt), *baseline.tokens[: found.position]], found, bench.plan.sampling)


def say(check: Check, label: str) -> None:
    """Prints one line about a check."""

    def word(found: Difference | None) -> str:
        return "equal" if found is None else f"{'near-tie' if is_near_tie(found) else 'DIFFERENT'} {found.to_json()}"

    plain = word(check.plain_difference) if check.plain_compared else "not compared (sampled children)"
    size = f"{check.new_tokens} tokens, {check.rounds[1]} rounds"
    print(f"{label}T={check.temperature:g} {check.drafter} {check.prompt} ({size}): device {word(check.difference)}; plain decoding {plain}", flush=True)


def measure(target: Target, names: list[str], prompts: tuple[Prompt, ...], plan: Plan, label: str) -> list[dict[str, Any]]:
    """Returns the bench record of every drafter against plain decoding on one device."""
    bench = Bench(target, [parse_spec(name) for name in names if name != BASELINE], plan)
    bench.warm_up(prompts[0])
    pairs: dict[str, list[Pair]] = {name: [] for name in bench.drafters}
    for name, pair in bench.pairs(prompts):
        pairs[name].append(pair)
    records = [result(name, found) for name, found in pairs.items()]
    for record in records:
        speed, plain = record["tokens_per_second"], record["baseline_tokens_per_second"]
        print(
            f"{label}{record['name']:16} tau {record['tau']:.2f}, {speed:.1f} tokens/s against {plain:.1f} plain, speed-up {record['speedup']:.2f}", flush=True
        )
    return records


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SpecvizError as problem:
        raise SystemExit(f"gpu_check: {problem}") from None
