from __future__ import annotations

from typing import Annotated

from specviz.errors import BadInput
from specviz.registry import Knob
from specviz.shapes.base import MAX_NODES, Growth
from specviz.tree import TokenTree


def cartesian(
    growth: Growth,
    *,
    widths: Annotated[str, Knob("Widths", "Children per node at each depth: 3-2-1 gives 3 + 6 + 6 candidates.", check=parse_widths)] = "3-2-1-1",
) -> TokenTree:
    """Every node of a depth gets the same number of children, so the tree is the product of the choices (Medusa, section 2.2)."""
    nodes = [0]
    for width in parse_widths(widths):
        nodes = [kid for kids in growth.expand(nodes, width) for kid in kids]
    return growth.tree()


def parse_widths(text: str) -> tuple[int, ...]:
    """Returns (3, 2, 1) for "3-2-1" (also with commas, spaces or x between); raises BadInput when the tree would be too large."""
    parts = text.replace("x", " ").replace("-", " ").replace(",", " ").split()
    if not 0 < len(parts) <= 16 or not all(part.isdecimal() and len(part) < 4 and int(part) > 0 for part in parts):
        raise BadInput(f"widths={text!r} cannot be read. Expected up to 16 whole numbers from 1 joined by '-', for example 3-2-1.")
    widths, level, total = tuple(map(int, parts)), 1, 1
    for width in widths:
        level *= width
        total += level
    if total > MAX_NODES:
        raise BadInput(f"widths={text!r} makes a tree of {total} nodes, more than {MAX_NODES}. Lower the first widths or drop the last.")
    return widths
