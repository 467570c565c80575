"""Bench: every drafter against plain decoding, prompt by prompt, on the same machine in the same minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch

from specviz.analysis.compare import EPSILON, Difference, first_difference
from specviz.analysis.summary import summarise
from specviz.analysis.versus import Pair, Run
from specviz.build import PLAIN, Spec, build_drafter, parse_spec
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter
from specviz.events import Drafted
from specviz.prompts import Prompt
from specviz.registry import Bound
from specviz.sampling import Sampling, Uniform, warp
from specviz.say import Say, silent
from specviz.target import Target
from specviz.trace import Trace

WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class Plan:
    """How a bench decodes: the same for every drafter and for the baseline. `raw` leaves out the chat template."""

    rule: Bound
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 128
    raw: bool = False


class Bench:
    """Decodes prompts with several drafters and the baseline in turn; what is timed is warmed up first."""

    def __init__(self, target: Target, specs: Sequence[Spec], plan: Plan, say: Say = silent) -> None:
        self.target, self.plan = target, plan
        self.baseline = build_drafter(target, parse_spec(PLAIN))
        self.drafters = {str(spec): build_drafter(target, spec, temperature=plan.sampling.temperature, say=say) for spec in specs}

    def warm_up(self, prompt: Prompt) -> None:
        """Runs every drafter and the baseline for a few tokens."""
        for drafter in (self.baseline, *self.drafters.values()):
            self.run(drafter, prompt, min(WARM_UP_TOKENS, self.plan.max_new_tokens))

    def pairs(self, prompts: Sequence[Prompt]) -> Iterator[tuple[str, Pair]]:
        """Yields (drafter, its pair) prompt by prompt; who goes first moves on by one with every prompt, so that a slow minute hits all alike."""
        names = [PLAIN, *self.drafters]
        for place, prompt in enumerate(prompts):
            turn = place % len(names)
            # the baseline's entry in the order is a place, not a name: `autoregressive` may itself be one of the drafters
            order: list[Drafter] = [self.baseline, *self.drafters.values()]
            runs = {id(drafter): self.run(drafter, prompt, self.plan.max_new_tokens) for drafter in order[turn:] + order[:turn]}
            for name, drafter in self.drafters.items():
                yield name, self._pair(runs[id(drafter)], runs[id(self.baseline)])

    def run(self, drafter: Drafter, prompt: Prompt, max_new_tokens: int, detail: bool = True) -> Run:
        """Decodes one prompt and keeps its numbers; the trace itself is dropped."""
        trace = Trace()
        for _ in trace.record(self.events(drafter, prompt, max_new_tokens, detail)):
            pass
        sampled = any(event.draws for event in trace.events if isinstance(event, Drafted))
        return Run(prompt, summarise(trace), tuple(trace.emitted()), sampled, dict(trace.started().meta))

    def events(self, drafter: Drafter, prompt: Prompt, max_new_tokens: int, detail: bool = True) -> Iterator[Any]:
        request = Request(self.ids(prompt), prompt.text)
        return decode(self.target, drafter, self.plan.rule, [request], sampling=self.plan.sampling, max_new_tokens=max_new_tokens, detail=detail)

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        return tuple(self.target.tokenizer(prompt.text).input_ids if self.plan.raw else self.target.encode(prompt.text))

    def _pair(self, run: Run, baseline: Run) -> Pair:
        found, why_not = first_difference(baseline.tokens, run.tokens), self._incomparable(run)
        if found is not None and why_not is None:
            found = measure_gap(self.target, [*self.ids(run.prompt), *baseline.tokens[: found.position]], found, self.plan.sampling)
        return Pair(run, baseline, None if why_not else found, why_not)

    def _incomparable(self, run: Run) -> str | None:
        """Returns None where a lossless rule must give the baseline's text, else the reason why it need not."""
        if self.plan.sampling.greedy or not run.sampled:
            return None
        return "children are sampled from the draft: equal to plain decoding in distribution, not token for token"


def measure_gap(target: Target, ids: Sequence[int], difference: Difference, sampling: Sampling) -> Difference:
    """Returns the difference with how close the target's decision was, from one plain forward of the shared text.

    At temperature 0 gap is the distance of the two logits; above it, how far the draw lay from the nearer edge of the
    baseline's token. resolution is what the dtype can tell apart there: epsilon times the largest logit (over temperature).
    """
    with torch.inference_mode():
        logits = target.prefill(ids, target.new_cache(1, len(ids))).logits[0, -1].double()
        dtype = str(target.dtype).removeprefix("torch.")
        epsilon = EPSILON[dtype]
        here, there = difference.baseline, difference.other
        resolution = epsilon * float(logits.abs().max()) / (sampling.temperature or 1.0)
        known = replace(difference, dtype=dtype, epsilon=epsilon, resolution=resolution, unit="logit" if sampling.greedy else "probability")
        if sampling.greedy:
            return known if here is None or there is None else replace(known, gap=abs(float(logits[here] - logits[there])))
        if here is None:
            return known
        edges = warp(logits[None], sampling)[0].cumsum(-1)
        u = Uniform(sampling.seed)(len(ids), "token")
        low, high = (float(edges[here - 1]) if here else 0.0), float(edges[here])
        return replace(known, gap=min(abs(u - low), abs(high - u)))


@dataclass(frozen=True)
class Overhead:
    """What recording costs: wall seconds to drain the generator with and without it, run by run in turn."""

    recorded: tuple[float, ...]
    plain: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over the repeats of recorded / plain."""
        return median(a / b for a, b in zip(self.recorded, self.plain, strict=True))


def trace_overhead(bench: Bench, name: str, prompts: Sequence[Prompt], repeats: int, tick: Callable[[], None] = lambda: None) -> Overhead:
    """Measures one drafter on every prompt, `repeats` times; each repeat drains with and without recording, the order alternating."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(repeats):
        for place, prompt in enumerate(prompts):
            for detail in (True, False) if (repeat + place) % 2 else (False, True):
                spent[detail].append(drain(bench, bench.drafters[name], prompt, detail))
            tick()
    return Overhead(tuple(spent[True]), tuple(spent[False]))


def drain(bench: Bench, drafter: Drafter, prompt: Prompt, detail: bool) -> float:
    """Returns the wall seconds of one run; with `detail` its trace is recorded, without it the events are dropped."""
    events = bench.events(drafter, prompt, bench.plan.max_new_tokens, detail)
    start = time.perf_counter()
    for _ in Trace().record(events) if detail else events:
        pass
    return time.perf_counter() - start
