"""Does a CUDA device write the CPU's tokens? Every drafter, temperature 0 and 1 with keyed randomness, with CUDA graphs and without,
and with graphs for verification alone, drafting step by step.

All run in float32 with TF32 off. Without CUDA this is a dry run: float64 on the CPU stands in for the device, and static shapes
without a graph for its graphs, which shows that the check works and nothing about a GPU; every line and the result file say
so. Exit status: 0 all equal (near-ties are listed with their gap), 1 a difference that rounding does not explain.
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
from specviz.analysis.versus import Run
from specviz.bench import Bench, Plan, measure_gap
from specviz.build import PLAIN, build_drafter, build_rule, parse_spec
from specviz.errors import Missing, SpecvizError
from specviz.prompts import BUILT_IN, Prompt
from specviz.record import device_name
from specviz.registry import discover
from specviz.sampling import Sampling
from specviz.target import Target

# How far rounding may move a decision in float32: the tolerance of the logit tests, and what it can move a cumulative sum.
NEAR_TIE = {"logit": 1e-3, "probability": 1e-4}
WIDE = "dynamic:nodes=64,depth=6,top_k=10"  # where 64 nodes cost about as much as one, a larger tree than a CPU's default pays


@dataclass(frozen=True)
class Check:
    """One drafter on one prompt at one temperature on the device, against the CPU, against no graphs, and against plain decoding.

    draft_graphs is how its drafts were made; where by replay, step_by_step is what differs without that, and its rounds are the
    third number: drafts that differ although the text does not show there.
    plain_compared is False where children were sampled from the draft: then the text need not be plain decoding's.
    """

    drafter: str
    temperature: float
    prompt: str
    new_tokens: int
    draft_graphs: str
    rounds: tuple[int, ...]  # reference, device, and the device drafting step by step
    difference: Difference | None
    without_graphs: Difference | None
    step_by_step: Difference | None
    plain_compared: bool
    plain_difference: Difference | None

    @property
    def found(self) -> list[Difference]:
        return [one for one in (self.difference, self.without_graphs, self.step_by_step, self.plain_difference) if one is not None]

    @property
    def failed(self) -> bool:
        return not all(is_near_tie(one) for one in self.found)


@dataclass(frozen=True)
class Sides:
    """The same model: on the CPU, and on the device with graphs, without any, and with graphs for verification alone."""

    reference: Target
    device: Target
    ordinary: Target
    stepwise: Target

    @classmethod
    def load(cls, name: str, dry: bool) -> Sides:
        reference = Target.load(name, "cpu", "float32")
        device = Target.load(name, "cpu", "float64", graphs=True) if dry else Target.load(name, "cuda", "float32")
        ordinary, stepwise = (Target(device.model, device.tokenizer, device.name, device.fingerprint) for _ in range(2))
        stepwise.use_graphs()
        stepwise.graphs.drafting = False
        return cls(reference, device, ordinary, stepwise)


def is_near_tie(found: Difference) -> bool:
    """True where rounding explains a difference: the decision lay that close."""
    return found.gap is not None and found.gap <= NEAR_TIE[found.unit]


def main() -> int:
    """Runs the comparison, prints one line each, writes gpu_check.json; with --specs it only prints what can be measured here."""
    args = read_arguments()
    dry = not torch.cuda.is_available() or args.dry
    label = "DRY RUN (CPU float64 in the device's place): " if dry else ""
    started = time.time()
    if args.specs:
        print(",".join(wide_specs(runnable(Target.load(args.target, "cpu", graphs=False))[0])))
        return 0
    sides = Sides.load(args.target, dry)
    device = sides.device
    print(f"{label}cpu float32 against {device_name(device.device)} {device.dtype}, graphs: {device.graphs.mode}", flush=True)
    names, left_out = runnable(sides.reference)
    names = [name for name in names if not args.drafters or name in args.drafters.split(",")]
    prompts = BUILT_IN[: args.prompts]
    checks = [check for temperature in (0.0, 1.0) for check in compare(sides, names, prompts, plan_for(temperature, args), label)]
    failed, equal = sum(check.failed for check in checks), sum(not check.found for check in checks)
    record = {
        "dry_run": dry,
        "compared": ["cpu float32", f"{device.device} {device.dtype}"],
        "graphs": device.graphs.mode,
        "drafts_by_replay": sorted({check.drafter for check in checks if check.draft_graphs != "off"}),
        "notes": list(device.notes),
        "left_out": left_out,
        "device": device_name(device.device),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]},
        "cuda": torch.version.cuda,
        "seed": args.seed,
        "checks": [{**asdict(check), "equal": not check.found, "failed": check.failed} for check in checks],
        "failed": failed,
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
    parser.add_argument("--drafters", help="only these, joined by commas (default: every drafter that can run)")
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="a dry run although there is CUDA")
    parser.add_argument("--specs", action="store_true", help="print the drafters that can be measured here, as a list for `bench --drafters`, and end")
    return parser.parse_args()


def runnable(target: Target) -> tuple[list[str], dict[str, str]]:
    """Returns the drafters that can be built for the target, and why the others cannot."""
    names, left_out = [], {}
    for name in discover(drafters):
        try:
            build_drafter(target, parse_spec(name))
            names.append(name)
        except Missing as problem:
            left_out[name] = str(problem)
    return names, left_out


def wide_specs(names: list[str]) -> list[str]:
    """Returns every drafter but the baseline with its defaults, and with a tree for a device on which nodes are cheap where it has one."""
    known = discover(drafters)
    return [spec for name in names if name != PLAIN for spec in ([name, f"{name}@{WIDE}"] if known[name].default_shape else [name])]


def fixed_specs(names: list[str]) -> list[str]:
    """Returns every drafter with its shape's own defaults: the same tree on every side, and nothing that has to be measured first."""
    known = discover(drafters)
    return [f"{name}@{known[name].default_shape}" if known[name].default_shape else name for name in names]


def plan_for(temperature: float, args: argparse.Namespace) -> Plan:
    return Plan(build_rule("rejection"), Sampling(temperature, seed=args.seed), args.tokens)


def compare(sides: Sides, names: list[str], prompts: tuple[Prompt, ...], plan: Plan, label: str) -> list[Check]:
    """Decodes every prompt with every drafter on all sides and compares the tokens."""
    specs = [parse_spec(spec) for spec in fixed_specs(names)]
    benches = [Bench(target, specs, plan) for target in (sides.reference, sides.device, sides.ordinary, sides.stepwise)]
    checks = []
    for prompt in prompts:
        plain = benches[1].run(benches[1].baseline, prompt, plan.max_new_tokens)
        for spec in map(str, specs):
            checks.append(check_one(benches, spec, prompt, plain))
            say(checks[-1], label)
    return checks


def check_one(benches: list[Bench], spec: str, prompt: Prompt, plain: Run) -> Check:
    """Returns the comparison of one drafter's runs; `benches` as the fields of Sides, `plain` the device's run without a drafter."""
    here, there, without, stepwise = benches
    sampling, tokens = there.plan.sampling, there.plan.max_new_tokens
    a, b, c = (bench.run(bench.drafters[spec], prompt, tokens) for bench in (here, there, without))
    mode = there.drafters[spec].describe().get("draft_graphs", "off")
    d = None if mode == "off" else stepwise.run(stepwise.drafters[spec], prompt, tokens)
    comparable = sampling.greedy or not b.sampled
    return Check(
        drafter=spec,
        temperature=sampling.temperature,
        prompt=prompt.name,
        new_tokens=len(b.tokens),
        draft_graphs=mode,
        rounds=tuple(run.summary.rounds for run in (a, b, d) if run is not None),
        difference=explain(here, a, b),
        without_graphs=explain(there, c, b),
        step_by_step=None if d is None else explain(there, d, b),
        plain_compared=comparable,
        plain_difference=explain(there, plain, b) if comparable else None,
    )


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

    plain: Any = word(check.plain_difference) if check.plain_compared else "not compared (sampled children)"
    size = f"{check.new_tokens} tokens, {'/'.join(map(str, check.rounds))} rounds, drafts by replay: {check.draft_graphs}"
    told = f"device {word(check.difference)}; without graphs {word(check.without_graphs)}; plain decoding {plain}"
    told += "" if check.draft_graphs == "off" else f"; drafting step by step {word(check.step_by_step)}"
    print(f"{label}T={check.temperature:g} {check.drafter} {check.prompt} ({size}): {told}", flush=True)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except SpecvizError as problem:
        raise SystemExit(f"gpu_check: {problem}") from None
