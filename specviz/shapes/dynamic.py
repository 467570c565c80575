from __future__ import annotations

import heapq
import math
from typing import Annotated

from specviz.errors import BadInput
from specviz.registry import Knob
from specviz.shapes.base import MAX_NODES, Growth
from specviz.tree import TokenTree

MOST_GROWN = 128  # nodes that a tree which grows may be asked for
STOP_BELOW = 0.2  # where a draft step costs a twentieth of a round, as on a CPU: speed is flat from 0.15 to 0.3 (LOG.md)
STOPPED_DEPTH = 5  # of a tree that stops by itself, at least


def dynamic(
    growth: Growth,
    *,
    nodes: Annotated[int, Knob("Nodes", "Nodes verified per round, the root included.", 2, MOST_GROWN, 1, auto=True)] = 24,
    depth: Annotated[int, Knob("Depth", "Draft steps, the first included.", 1, 12, 1, auto=True)] = 5,
    top_k: Annotated[int, Knob("Top k", "Children drafted per node, and nodes expanded per depth.", 1, 32, 1, auto=True)] = 8,
    stop_below: Annotated[
        float,
        Knob("Stop below", "Draft no further level once the best path is less probable than this; 0 always drafts all levels.", 0.0, 0.95, 0.05, auto=True),
    ] = 0.0,
    show_pruned: Annotated[int, Knob("Cut candidates kept", "How many drafted but cut candidates a trace keeps, best first.", 0, 256, 1, advanced=True)] = 32,
) -> TokenTree:
    """Grows where the draft is confident: expands the best nodes per depth, then keeps the best overall (EAGLE-2, section 4).

    `stop_below` is no part of the paper: it saves the draft steps of levels that are hardly ever reached.
    """
    if growth.sampled:
        raise BadInput(
            "'dynamic' selects among drafted tokens, which is exact only for deterministic children. Use shape chain, cartesian or eagle_25, or children=top."
        )
    frontier = [0]
    for _ in range(depth):
        kids = [kid for group in growth.expand(frontier, top_k) for kid in group]
        frontier = heapq.nsmallest(top_k, kids, key=lambda node: (-growth.totals[node], node))
        if not frontier:
            break
        if len(growth.tokens) >= nodes:  # a frontier that can no longer enter the best `nodes` need not be expanded
            edge = heapq.nsmallest(nodes, (-total for total in growth.totals))[-1]
            frontier = [node for node in frontier if -growth.totals[node] < edge]
        if stop_below and frontier and growth.totals[frontier[0]] < math.log(stop_below):
            break
    return growth.tree(growth.best(nodes), show_pruned)


def fitting(nodes: int, *, wide: bool = False, stops: bool = False) -> dict[str, int | float]:
    """Returns the other knobs that suit a tree of `nodes`: what `auto` uses, and, without `stops`, what a head's report is measured with.

    A small tree gains nothing from candidates that cannot enter it, and every draft step costs time; a drafter that is `wide`
    pays nothing for more candidates. A tree that `stops` goes deeper where the draft is sure, and not so deep where it is not.
    """
    depth, top_k = next((depth, wider if wide else top_k) for most, depth, top_k, wider in _FITTING if nodes <= most)
    return {"depth": max(depth, STOPPED_DEPTH) if stops else depth, "top_k": top_k, "stop_below": STOP_BELOW if stops else 0.0}


_FITTING = ((8, 3, 4, 6), (16, 4, 6, 12), (32, 5, 8, 16), (MAX_NODES, 6, 10, 24))  # (up to this many nodes, depth, top_k, top_k where that is free)
