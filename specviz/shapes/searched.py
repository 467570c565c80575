from __future__ import annotations

from typing import Annotated

from specviz.registry import Knob
from specviz.shapes._files import find_shape, shape_names
from specviz.shapes.base import MAX_NODES, Growth, grow_paths
from specviz.tree import TokenTree


def searched(
    growth: Growth,
    *,
    file: Annotated[
        str, Knob("Tree", "A tree that `shape search` found for a drafter; its name, or the path of its file.", offers=shape_names, check=find_shape)
    ] = "medusa_64",
    nodes: Annotated[int, Knob("Nodes", "Uses only the best so many of its nodes, the root included; 0 for all.", 0, MAX_NODES, 1)] = 0,
) -> TokenTree:
    """A sparse static tree, grown greedily from the ranks that a drafter's right guesses had (Medusa, section 2.3.3)."""
    paths = find_shape(file).paths
    return grow_paths(growth, paths[: nodes - 1] if nodes else paths)
