"""What gpu_check.py compares: one drafter on one prompt on all sides, by its text and by its number of rounds.

A lossless rule hides a wrong draft: the text stays the same and only more rounds are needed. So rounds are compared as well. Rounding
may move them by a few, which is told; more than that is a failure with a name of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specviz import drafters
from specviz.analysis.compare import Difference, first_difference
from specviz.analysis.summary import summarise
from specviz.analysis.versus import Run
from specviz.bench import Bench, Plan, measure_gap
from specviz.build import Spec
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter
from specviz.events import Drafted
from specviz.graphs.lease import VIEW
from specviz.prompts import BUILT_IN, Prompt
from specviz.registry import discover
from specviz.target import Target
from specviz.trace import Trace

# How far rounding may move a decision in float32: the tolerance of the logit tests, and what it can move a cumulative sum.
NEAR_TIE = {"logit": 1e-3, "probability": 1e-4}
# How far rounds may lie apart when the text is the same, as a share of them: near-ties of the draft fall either way. A CPU's heads may
# multiply in bfloat16 where the device's do not.
ROUNDS = {"reference": 0.2, "ordinary": 0.1, "stepwise": 0.1}
FEW_ROUNDS = 2  # are always allowed
SAID = {"reference": "on the CPU", "ordinary": "without graphs", "stepwise": "drafting step by step", "plain": "by plain decoding"}


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
        return cls.beside(reference, Target.load(name, "cpu", "float64", graphs=True) if dry else Target.load(name, "cuda", "float32"))

    @classmethod
    def beside(cls, reference: Target, device: Target) -> Sides:
        ordinary, stepwise = (Target(device.model, device.tokenizer, device.name, device.fingerprint) for _ in range(2))
        stepwise.use_graphs()
        stepwise.graphs.drafting = False
        return cls(reference, device, ordinary, stepwise)


@dataclass(frozen=True)
class Check:
    """One drafter on one prompt at one temperature: the device's run against that of every other side, and against plain decoding.

    draft_graphs is how its drafts were made, None for a drafter without a head; only where by replay is there a side `stepwise`.
    plain_compared is False where children were sampled from the draft: then the text need not be plain decoding's.
    """

    drafter: str
    temperature: float
    prompt: str
    new_tokens: int
    draft_graphs: str | None
    rounds: Mapping[str, int]  # by side, the device's first
    differences: Mapping[str, Difference | None]  # of the text, by side
    plain_compared: bool

    @property
    def equal(self) -> bool:
        return not any(self.differences.values())

    @property
    def rounds_apart(self) -> dict[str, int]:
        """Rounds of the device minus those of a side with the same text, where there are more or fewer."""
        same = [side for side in self.rounds if side in self.differences and self.differences[side] is None]
        return {side: self.rounds["device"] - self.rounds[side] for side in same if self.rounds["device"] != self.rounds[side]}

    @property
    def why(self) -> str:
        """Says in words what failed; empty where nothing did."""
        texts = {side: found for side, found in self.differences.items() if found is not None and not is_near_tie(found)}
        told = [f"another text {SAID[side]} from new token {found.position + 1} on" for side, found in texts.items()]
        allowed = {side: max(FEW_ROUNDS, round(ROUNDS[side] * self.rounds[side])) for side in self.rounds_apart}
        far = [side for side, apart in self.rounds_apart.items() if abs(apart) > allowed[side]]
        told += [f"drafts differ: {self.rounds['device']} rounds, {self.rounds[side]} {SAID[side]}, at most {allowed[side]} apart expected" for side in far]
        return "; ".join(told)

    @property
    def failed(self) -> bool:
        return bool(self.why)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal, "rounds_apart": self.rounds_apart, "failed": self.failed, "why": self.why}


def is_near_tie(found: Difference) -> bool:
    """True where rounding explains a difference: the decision lay that close."""
    return found.gap is not None and found.gap <= NEAR_TIE[found.unit]


def every_check(sides: Sides, specs: Sequence[Spec], prompts: Sequence[Prompt], plans: Sequence[Plan]) -> Iterator[Check]:
    """Yields the checks as they are made: at each plan's temperature every drafter on every prompt, and at the first one what comes rarely.

    That is a text that leaves the first view while it is decoded, and two rows at once, both by the drafters that remember the text.
    """
    first = {name: Bench(getattr(sides, name), specs, plans[0]) for name in ("device", "reference", "ordinary", "stepwise")}
    known, names = discover(drafters), [str(spec) for spec in specs]
    few = [str(spec) for spec in specs if getattr(known[spec.drafter], "remembers", False)] or names[-1:]
    for plan in plans:
        benches = {name: planned(bench, plan) for name, bench in first.items()}
        for prompt in prompts:
            yield from check(benches, names, [prompt])
        if plan is plans[0]:
            yield from check(benches, few, [long_prompt(sides.device, plan.max_new_tokens)])
            yield from check(benches, few, [BUILT_IN[0], BUILT_IN[4]])


def planned(bench: Bench, plan: Plan) -> Bench:
    """Returns a bench of the same loaded drafters that decodes by another plan; their trees are fixed, so no temperature changes them."""
    made = copy.copy(bench)
    made.plan = plan
    return made


def long_prompt(target: Target, new_tokens: int) -> Prompt:
    """Returns a prompt that ends half the new tokens before the first view does, so that the run goes on in the next one."""
    most, words = max(1, VIEW - new_tokens // 2), BUILT_IN[4].text.split() * VIEW
    low, high = 1, VIEW  # a word is at least a token
    while low < high:  # the most words that fit
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(target.encode(" ".join(words[:middle]))) <= most else (low, middle - 1)
    return Prompt(" ".join(words[:low]), "long")


def check(benches: Mapping[str, Bench], specs: Sequence[str], prompts: Sequence[Prompt]) -> Iterator[Check]:
    """Yields the checks of these drafters on prompts that are decoded at once, one a row; `benches` by the fields of Sides."""
    device = benches["device"]
    plain = [run_rows(device, device.baseline, [prompt])[0] for prompt in prompts]
    for spec in specs:
        runs = {side: run_rows(bench, bench.drafters[spec], prompts) for side, bench in benches.items() if side != "stepwise"}
        mode = device.drafters[spec].describe().get("draft_graphs")  # asked after the run, which may have fallen back
        if mode not in (None, "off"):
            runs["stepwise"] = run_rows(benches["stepwise"], benches["stepwise"].drafters[spec], prompts)
        for row, prompt in enumerate(prompts):
            mine = {side: found[row] for side, found in runs.items()}
            where = prompt.name if len(prompts) == 1 else f"{prompt.name} (row {row + 1} of {len(prompts)})"
            yield compared(benches, spec, where, mode, mine, plain[row])


def compared(benches: Mapping[str, Bench], spec: str, prompt: str, mode: str | None, runs: Mapping[str, Run], plain: Run) -> Check:
    """Returns the comparison of one row's runs by side."""
    device, ours = benches["device"], runs["device"]
    comparable = device.plan.sampling.greedy or not ours.sampled
    # the gap is measured by the ordinary path of the side in question: the reference's own, the device's for all others
    differences = {side: explain(benches[side if side == "reference" else "device"], run, ours) for side, run in runs.items() if side != "device"}
    differences |= {"plain": explain(device, plain, ours)} if comparable else {}
    rounds = {side: run.summary.rounds for side, run in runs.items()}
    return Check(spec, device.plan.sampling.temperature, prompt, len(ours.tokens), mode, rounds, differences, comparable)


def run_rows(bench: Bench, drafter: Drafter, prompts: Sequence[Prompt]) -> list[Run]:
    """Decodes prompts as the rows of one batch."""
    trace, plan = Trace(), bench.plan
    requests = [Request(bench.ids(prompt), prompt.text) for prompt in prompts]
    for _ in trace.record(decode(bench.target, drafter, plan.rule, requests, sampling=plan.sampling, max_new_tokens=plan.max_new_tokens)):
        pass
    sampled = any(event.draws for event in trace.events if isinstance(event, Drafted))
    return [Run(prompt, summarise(trace, row), tuple(trace.emitted(row)), sampled) for row, prompt in enumerate(prompts)]


def explain(bench: Bench, baseline: Run, other: Run) -> Difference | None:
    """Returns where two runs of one prompt part, with how close the decision was for the bench's target; None when they are equal."""
    found = first_difference(baseline.tokens, other.tokens)
    if found is None:
        return None
    return measure_gap(bench.target, [*bench.ids(baseline.prompt), *baseline.tokens[: found.position]], found, bench.plan.sampling)


def line(found: Check) -> str:
    """Returns one line about a check."""

    def word(side: str) -> str:
        one = found.differences[side]
        return f"{SAID[side]} {'equal' if one is None else ('near-tie ' if is_near_tie(one) else 'DIFFERENT ') + str(one.to_json())}"

    rounds = "/".join(f"{count}" for count in found.rounds.values())
    told = [word(side) for side in found.differences] + ([] if found.plain_compared else ["plain decoding not compared (sampled children)"])
    told += [f"rounds apart {found.rounds_apart}"] if found.rounds_apart else []
    told += [f"FAILED: {found.why}"] if found.failed else []
    size = f"{found.new_tokens} tokens, {rounds} rounds, drafts by replay: {found.draft_graphs or 'none'}"
    return f"T={found.temperature:g} {found.drafter} {found.prompt} ({size}): {'; '.join(told)}"
