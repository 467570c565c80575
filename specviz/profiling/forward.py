"""C(N): what one verification of N nodes costs, alone and for several rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from time import perf_counter

from specviz.analysis.profile import Spread
from specviz.clock import Clock
from specviz.target import Target
from specviz.tree import TokenTree

LEAST = 2  # repeats that are made whatever the time


def tree_of(nodes: int, vocabulary: int) -> TokenTree:
    """Returns a tree of so many nodes, two children a node; which tree it is does not change the cost of a forward."""
    random = Random(nodes)
    return TokenTree(tuple(random.randrange(vocabulary) for _ in range(nodes)), tuple((node - 1) // 2 if node else -1 for node in range(nodes)))


def forward_costs(
    target: Target, sizes: Sequence[int], *, repeats: int, cached: int, batch: int = 1, patience: float = inf, tick: Callable[[], None] = lambda: None
) -> dict[int, Spread]:
    """Returns milliseconds of `Target.forward` by nodes, behind `cached` committed tokens in each of `batch` rows.

    The sizes take turns, `repeats` times after a first round that is not counted, so that a slow second hits all alike; every
    round begins with another size. After `patience` seconds LEAST repeats are enough. Nothing is committed: the cache stays as it is.
    """
    sizes = sorted(set(sizes))
    cached = committed(target, cached, max(sizes))
    cache, clock, random = target.new_cache(batch, cached + max(sizes)), Clock(target.device), Random(0)
    for row in range(batch):
        target.prefill([random.randrange(target.vocab_size) for _ in range(cached)], cache, row)
    trees = {nodes: [tree_of(nodes, target.vocab_size)] * batch for nodes in sizes}
    spent: dict[int, list[float]] = {nodes: [] for nodes in sizes}
    start = perf_counter()
    for repeat in range(repeats + 1):
        if repeat > LEAST and perf_counter() - start > patience:
            break
        turn = repeat % len(sizes)
        for nodes in (*sizes[turn:], *sizes[:turn]):
            with clock.phase("verify"):
                target.forward(trees[nodes], cache)
            seconds = clock.take()["verify"]
            if repeat:
                spent[nodes].append(1000.0 * seconds)
        tick()
    return {nodes: Spread.of(values) for nodes, values in spent.items()}


def committed(target: Target, wanted: int, nodes: int) -> int:
    """Returns how many tokens can stand in the cache when so many nodes come behind them."""
    return max(1, min(wanted, target.context - nodes))
