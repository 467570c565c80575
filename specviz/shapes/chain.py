from __future__ import annotations

from typing import Annotated

from specviz.registry import Knob
from specviz.shapes.base import Growth
from specviz.tree import TokenTree


def chain(growth: Growth, *, depth: Annotated[int, Knob("Depth", "Tokens drafted one after another.", 1, 16, 1)] = 4) -> TokenTree:
    """One path: the draft's first choice at every step, as in the first speculative decoding papers."""
    nodes = [0]
    for _ in range(depth):
        nodes = [kid for kids in growth.expand(nodes, 1) for kid in kids]
    return growth.tree()
