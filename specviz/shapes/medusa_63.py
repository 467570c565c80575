from __future__ import annotations

from specviz.shapes.base import Growth, grow_paths
from specviz.tree import TokenTree

# The published tree of 63 paths for Vicuna-7B, rank by rank: "01" is the second choice after the first choice.
PATHS = (
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000 011 006 030 50 13 "
    "007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070"
)


def medusa_63(growth: Growth) -> TokenTree:
    """The published sparse tree of 63 candidates for a 7B model, wide at the first token and four deep (Medusa, section 2.3.3)."""
    return grow_paths(growth, [tuple(map(int, path)) for path in PATHS.split()])
