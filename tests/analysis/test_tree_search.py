"""Tree search on numbers: the published worked examples, the best tree against all trees, lengths against a simulation."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from specviz.analysis.tree_search import best_widths, count_ranks, expected_length, grow_tree, measured_length, product_paths, search

FALLING = ((0.5, 0.2, 0.1, 0.05), (0.4, 0.2, 0.02), (0.3, 0.1))


def share(path, accuracy):
    value = 1.0
    for level, rank in enumerate(path):
        value *= accuracy[level][rank]
    return value


def closed(paths):
    known = {(), *paths}
    return all(path[:-1] in known for path in paths)


def draw(accuracy, rng):
    """One position whose depths are independent, each with these accuracies."""
    found = []
    for row in accuracy:
        u, total, rank = rng.random(), 0.0, -1
        for place, probability in enumerate(row):
            total += probability
            if u < total:
                rank = place
                break
        found.append(rank)
    return tuple(found)


def test_the_worked_example_of_a_chain():
    """Top-1 rates 0.6, 0.4 and 0.3: 1.91 tokens per round with 3 candidates."""
    paths = product_paths((1, 1, 1))
    assert len(paths) == 3
    assert round(expected_length(paths, ((0.6,), (0.4,), (0.3,))), 2) == 1.91


@pytest.mark.parametrize("split", [((0.6, 0.15, 0.05), (0.4, 0.15), (0.3,)), ((0.3, 0.3, 0.2), (0.3, 0.25), (0.3,))])
def test_the_worked_example_of_a_dense_tree(split):
    """Top-3 of head 1 at 0.8, top-2 of head 2 at 0.55, top-1 of head 3 at 0.3: 2.37 with 3 + 6 + 6 = 15 candidates, however the ranks share it."""
    paths = product_paths((3, 2, 1))
    assert len(paths) == 15
    assert round(expected_length(paths, split), 2) == 2.37


def test_ranks_and_depths_beyond_the_table_add_nothing():
    assert expected_length([(0,), (7,), (0, 0), (0, 0, 0)], ((0.5,), (0.5,))) == 1.75


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6])
def test_no_tree_of_its_size_is_expected_to_give_more(nodes):
    every = [path for depth in (1, 2, 3) for path in product(*(range(len(row)) for row in FALLING[:depth]))]
    best = max(expected_length(paths, FALLING) for paths in combinations(every, nodes - 1) if closed(paths))
    grown = grow_tree(FALLING, nodes)
    assert len(grown) == nodes - 1
    assert closed(grown)
    assert expected_length(grown, FALLING) == pytest.approx(best)


def test_the_first_nodes_of_a_tree_are_the_smaller_tree():
    big = grow_tree(FALLING, 20)
    assert all(grow_tree(FALLING, nodes) == big[: nodes - 1] for nodes in range(1, 20))
    gains = [share(path, FALLING) for path in big]
    assert gains == sorted(gains, reverse=True)


def test_it_goes_by_neighbours_only():
    """Rank 2 was right more often than rank 1, but joins after it, as a node's next sibling is offered when the node joins."""
    assert grow_tree(((0.5, 0.1, 0.3),), 4) == ((0,), (1,), (2,))
    assert grow_tree(((0.5, 0.01, 0.3), (0.2,)), 3) == ((0,), (0, 0))


def test_a_node_that_was_never_right_is_not_added():
    assert grow_tree(((0.5, 0.1, 0.0), (0.3, 0.0)), 64) == ((0,), (0, 0), (1,), (1, 0))
    assert grow_tree(((0.5, 0.0, 0.1), (0.0, 0.3)), 64) == ((0,), (0, 1), (2,), (2, 1))
    assert grow_tree((), 8) == ()
    assert grow_tree(((0.0, 0.0),), 8) == ()


def test_a_walk_counts_rounds_as_decoding_does():
    ranks = [(0, 1, 5), (9, 9, 9), (1, 0, 0), (0, 0, -1), (0, 0), (0,)]
    paths = [(0,), (1,), (0, 1), (1, 0), (0, 0)]
    # (0,1) accepted: 3 tokens, next at place 3: (0,0) accepted: 3 tokens, the end
    assert (measured_length(paths, [ranks]).tokens, measured_length(paths, [ranks]).rounds) == (6, 2)
    assert measured_length([], [ranks]).mean == 1.0
    assert measured_length(paths, [ranks, [], [(3,)]]).rounds == 3
    # a path that leaves the tree and would come back is not followed
    assert measured_length([(0,), (0, 5, 0)], [[(0, 5, 0), (2, 2, 2), (2, 2, 2), (2, 2)]]).rounds == 3


def test_the_last_path_may_be_cut_by_the_end_of_the_text():
    length = measured_length([(0,), (0, 0)], [[(0, 0), (0,)]])
    assert (length.tokens, length.rounds) == (2, 1)


def test_where_depths_are_independent_expected_and_measured_agree():
    rng = Random(1)
    texts = [[draw(FALLING, rng) for _ in range(4000)] for _ in range(10)]
    found = search(texts, 12, "mine", {"chain": product_paths((1, 1, 1))})
    for tree in found.compared:
        assert tree.measured == pytest.approx(tree.expected, rel=0.02)
        assert tree.anywhere == pytest.approx(tree.expected, rel=0.02)
    # truth, not only agreement
    assert found.compared[0].measured == pytest.approx(expected_length(grow_tree(FALLING, 12), FALLING), rel=0.02)


def test_where_depths_depend_on_each_other_they_do_not():
    """All depths hit together or none does: the product of 0.5s undercounts."""
    rng = Random(2)
    texts = [[(0, 0, 0) if rng.random() < 0.5 else (-1, -1, -1) for _ in range(3000)] for _ in range(4)]
    (mine, *_) = search(texts, 4, "mine", {}).compared
    assert mine.expected == pytest.approx(1.875, abs=0.05)
    assert mine.anywhere == pytest.approx(2.5, abs=0.08)
    assert mine.measured == pytest.approx(2.5, abs=0.08)


def test_where_rounds_begin_is_seen_by_the_walk_alone():
    """Every third token is a surprise: a round that begins after one gets two tokens and the surprise, others fewer."""
    ranks = [(0, 0, -1), (0, -1, 0), (-1, 0, 0)] * 200
    (mine, *_) = search([ranks, ranks], 4, "mine", {}).compared
    assert mine.anywhere == pytest.approx(2.0)
    assert mine.measured == pytest.approx(3.0)


def test_one_half_grows_and_the_other_measures():
    grow, rest = [(0, 3)] * 4, [(1, 1)] * 6
    found = search([grow, rest], 3, "mine", {"other": ((0,), (1,))})
    assert found.paths == ((0,), (0, 3))
    assert found.table.positions == 4
    names = [tree.name for tree in found.compared]
    assert names[0] == "mine"
    assert names[-1] == "other"
    assert found.compared[0].measured == 1.0, "the tree holds no rank 1, which is all that the other half has"
    assert found.compared[-1].measured == 2.0


@pytest.mark.parametrize("nodes", [2, 5, 16, 40])
def test_the_dense_rival_is_the_best_one(nodes):
    every = [widths for depth in (1, 2, 3) for widths in product(*(range(1, len(row) + 1) for row in FALLING[:depth]))]
    fitting = [product_paths(widths) for widths in every if len(product_paths(widths)) < nodes]
    best = max(expected_length(paths, FALLING) for paths in fitting)
    widths = best_widths(FALLING, nodes)
    assert len(product_paths(widths)) < nodes
    assert expected_length(product_paths(widths), FALLING) == pytest.approx(best)
    assert expected_length(grow_tree(FALLING, nodes), FALLING) >= best - 1e-12, "a sparse tree of the same budget is never worse"


def test_a_table_counts_whole_positions():
    table = count_ranks([[(0, 2), (1, -1), (0,)], [(0, 99)]], width=4)
    assert table.positions == 3
    assert table.counts == ((2, 1, 0, 0), (0, 0, 1, 0))
    assert table.accuracy[0] == pytest.approx((2 / 3, 1 / 3, 0, 0))
    assert count_ranks([]).accuracy == ()
