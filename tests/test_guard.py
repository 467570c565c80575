"""A guard against getting slower: ratios of things measured in turn on the real model, with generous bounds.

A time says nothing on a machine that does other things as well, so no time is compared with a number. Each ratio is taken twice,
by the clock and by processor seconds, and the better one counts: other programs disturb the first, threads that wait the second,
and code that became slow shows in both. docs/performance.md has the true numbers; the bounds here are far from them on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import pytest
import torch

from specviz.build import Spec, build_drafter, build_rule
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter
from specviz.peers._stock import load_stock
from specviz.peers.base import Job
from specviz.sampling import Sampling
from specviz.sources import locate
from specviz.target import Target
from specviz.trace import Trace
from specviz.tree import TokenTree
from specviz.ui.choices import first_choice

PROMPT = "List five things to check before a long bicycle ride."
TOKENS, CACHED = 24, 64
Work = Callable[[], object]


@dataclass(frozen=True)
class Spent:
    """Seconds of one piece of work: by the clock, and of the processor (all threads of this process)."""

    wall: float
    cpu: float


def spend(work: Work) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def ratio(work: Work, other: Work, repeats: int = 5) -> float:
    """Returns how many times longer `work` takes than `other`: medians of runs in turn after a warm-up, the better of clock and processor."""
    work(), other()
    pairs = [(spend(work), spend(other)) if turn % 2 else (spend(other), spend(work))[::-1] for turn in range(repeats)]
    return min(median(a.wall / b.wall for a, b in pairs), median(a.cpu / b.cpu for a, b in pairs))


def forward(target: Target, nodes: int) -> Work:
    """Returns the work of verifying a chain of `nodes` nodes behind some text."""
    cache = target.new_cache(1, CACHED + nodes)
    target.prefill([1 + i % 50 for i in range(CACHED)], cache)
    tree = TokenTree(tuple(range(2, 2 + nodes)), tuple(range(-1, nodes - 1)))

    def work() -> None:
        target.forward([tree], cache)

    return work


def run(target: Target, drafter: Drafter, *, tokens: int = TOKENS, recorded: bool = False) -> Work:
    """Returns the work of decoding the prompt; recorded as the app does it, or with nothing kept."""
    request, rule = Request(tuple(target.encode(PROMPT))), build_rule("greedy")

    def work() -> None:
        events = decode(target, drafter, rule, [request], sampling=Sampling(), max_new_tokens=tokens, detail=recorded)
        for _ in Trace().record(events) if recorded else events:
            pass

    return work


def generate(target: Target) -> Work:
    """Returns the work of transformers' own generate on its own, untouched model."""
    model, ids = load_stock(Job(target.name, locate(target.name), "cpu", "float32", 1)), torch.tensor([target.encode(PROMPT)])
    told: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 2}

    def work() -> None:
        model.generate(ids, **told)

    return work


def plain(target: Target) -> Drafter:
    return build_drafter(target, Spec("autoregressive"))


def default(target: Target) -> Drafter:
    """The drafter that the app opens with."""
    return build_drafter(target, Spec(first_choice(target.name).drafter))


@pytest.mark.real
def test_verifying_16_nodes_costs_little_more_than_one(real_model: Target) -> None:
    assert ratio(forward(real_model, 16), forward(real_model, 1), 9) < 2.5


@pytest.mark.real
def test_plain_decoding_keeps_up_with_generate(real_model: Target) -> None:
    assert ratio(run(real_model, plain(real_model)), generate(real_model), 3) < 1 / 0.9


@pytest.mark.real
def test_the_default_drafter_keeps_up_with_plain_decoding(real_model: Target) -> None:
    drafter = default(real_model)
    assert drafter.name != "autoregressive"
    assert ratio(run(real_model, drafter), run(real_model, plain(real_model)), 3) < 1 / 0.9


@pytest.mark.real
def test_recording_costs_little(real_model: Target) -> None:
    drafter = default(real_model)
    assert ratio(run(real_model, drafter, recorded=True), run(real_model, drafter), 3) < 1.25


def test_the_guard_can_fail(tiny_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a forward of 16 nodes that does everything four times."""
    stock = tiny_target.forward
    monkeypatch.setattr(tiny_target, "forward", lambda trees, cache: [stock(trees, cache) for _ in range(4 if len(trees[0]) == 16 else 1)])
    assert ratio(forward(tiny_target, 16), forward(tiny_target, 1), 9) > 2.5


@pytest.mark.parametrize("disturbed", [Spent(50.0, 1.0), Spent(1.0, 50.0)], ids=["by other programs", "by threads that wait"])
def test_a_machine_that_does_other_things_does_not_make_it_fail(disturbed: Spent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the clock, or the processor seconds, of every forward of 16 nodes tell fifty times too much."""
    monkeypatch.setitem(globals(), "spend", lambda work: disturbed if work() == 16 else Spent(1.0, 1.0))
    assert ratio(lambda: 16, lambda: 1, 9) < 2.5


def test_what_counts_is_the_median_of_pairs_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    order, seconds = [], iter((1, 2, 2, 1, 1, 2, 2, 1, 1, 50))
    monkeypatch.setitem(globals(), "spend", lambda work: order.append(work()) or Spent(float(now := next(seconds)), float(now)))
    assert ratio(lambda: "work", lambda: "other", 5) == 2.0
    assert order == ["other", "work", "work", "other", "other", "work", "work", "other", "other", "work"]
