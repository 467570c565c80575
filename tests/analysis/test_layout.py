"""The tree layout: one row per leaf, parents between their children, no crossings."""

from __future__ import annotations

from random import Random

import pytest
from trees import random_tree

from specviz.analysis.layout import LEAF, layout


def test_leaves_take_consecutive_rows_and_parents_stand_between_their_first_and_last_child() -> None:
    drawn = layout((-1, 0, 0, 1, 1, 1, 2))
    assert drawn.column == (0, 1, 1, 2, 2, 2, 2)
    assert drawn.row == (2.0, 1.0, 3.0, 0.0, 1.0, 2.0, 3.0)
    assert drawn.rows == 4


def test_a_root_alone_and_a_chain_take_one_row() -> None:
    assert layout((-1,)).row == (0.0,)
    assert layout(tuple(range(-1, 300))).rows == 1  # deeper than Python's recursion would like


def test_what_hangs_below_a_folded_node_has_no_place_and_takes_no_row() -> None:
    drawn = layout((-1, 0, 0, 1, 1, 1, 2), folded={1})
    assert drawn.rows == 2
    assert drawn.row == (0.5, 0.0, 1.0, None, None, None, 1.0)
    assert drawn.place(3, width=100, height=20) is None


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_a_column_follow_preorder_so_that_no_edges_cross(seed: int) -> None:
    tree = random_tree(Random(seed), 64, 50)
    drawn = layout(tree.parents)
    seen: dict[int, float] = {}
    children = [[] for _ in tree.parents]
    for node, parent in enumerate(tree.parents):
        if parent >= 0:
            children[parent].append(node)
    stack, leaves = [0], []
    while stack:
        node = stack.pop()
        row = drawn.row[node]
        assert row is not None
        assert row > seen.get(drawn.column[node], -1.0), "an earlier branch lies lower in this column"
        seen[drawn.column[node]] = row
        if children[node]:
            assert row == (drawn.row[children[node][0]] + drawn.row[children[node][-1]]) / 2
        else:
            leaves.append(row)
        stack += reversed(children[node])
    assert leaves == [float(i) for i in range(drawn.rows)]


def test_pixels_are_the_middle_of_the_cell_and_rows_stay_readable() -> None:
    drawn = layout((-1, 0, 0))
    assert drawn.place(2, width=100, height=20) == (150.0, 30.0)
    with pytest.raises(ValueError, match=f"at least {LEAF}"):
        drawn.place(2, width=100, height=LEAF - 1)
