from __future__ import annotations

from specviz.shapes.base import Growth, grow_paths
from specviz.tree import TokenTree

# The published static tree of 25 paths, rank by rank.
PATHS = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"


def eagle_25(growth: Growth) -> TokenTree:
    """The published static tree of 25 candidates, five deep (EAGLE, section 4.1)."""
    return grow_paths(growth, [tuple(map(int, path)) for path in PATHS.split()])
