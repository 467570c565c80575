from __future__ import annotations

from random import Random

import networkx
import pytest
import torch
from trees import random_tree

from specviz.errors import BadInput
from specviz.tree import Draw, TokenTree, ancestor_mask, chain, from_networkx, from_paths, to_networkx

#        0
#      1   2
#     3 4   5
SMALL = TokenTree((10, 11, 12, 13, 14, 15), (-1, 0, 0, 1, 1, 2))


@pytest.mark.parametrize(
    ("tokens", "parents", "expected"),
    [
        ((), (), "at least a root"),
        ((1, 2), (-1,), "as many parents as tokens"),
        ((1, 2), (0, 0), "-1 for node 0"),
        ((1, 2, 3), (-1, 2, 0), "precede"),
        ((1, 2), (-1, 1), "precede"),
        ((1, 2), (-1, -1), "precede"),
    ],
)
def test_what_is_no_tree_is_refused(tokens, parents, expected):
    with pytest.raises(BadInput, match=expected):
        TokenTree(tokens, parents)


@pytest.mark.parametrize("column", ["scores", "candidate", "source"])
def test_a_column_must_cover_every_node(column):
    with pytest.raises(BadInput, match=column):
        TokenTree((1, 2), (-1, 0), **{column: (1.0,)})


@pytest.mark.parametrize(
    ("draws", "expected"),
    [
        (((1, (1, 2)),), "not a child"),
        (((0, (2, 1)),), "order"),
        (((0, (1,)), (0, (2,))), "more than one"),
        (((0, (1, 9)),), "not a child"),
    ],
)
def test_draws_that_a_rule_would_misread_are_refused(draws, expected):
    q = torch.full((20,), 0.05).double()
    with pytest.raises(BadInput, match=expected):
        TokenTree(SMALL.tokens, SMALL.parents, draws=tuple(Draw(parent, kids, q) for parent, kids in draws))


def test_depths_children_ranks_and_paths():
    assert SMALL.depths == (0, 1, 1, 2, 2, 2)
    assert SMALL.children == ((1, 2), (3, 4), (5,), (), (), ())
    assert SMALL.ranks == (0, 0, 1, 0, 1, 0)
    assert SMALL.path_to(0) == ()
    assert SMALL.path_to(4) == (1, 4)


def test_passengers_are_nobodys_children():
    tree = TokenTree(SMALL.tokens, SMALL.parents, candidate=(True, False, True, True, True, True))
    assert tree.children[0] == (2,)
    assert tree.ranks[2] == 0


def test_chain():
    tree = chain(5, [6, 7, 8], [0.5, 0.4, 0.3])
    assert (tree.tokens, tree.parents, tree.scores) == ((5, 6, 7, 8), (-1, 0, 1, 2), (1.0, 0.5, 0.4, 0.3))
    assert len(chain(5, [])) == 1


def test_rank_paths_are_closed_under_ancestors():
    parents, ranks = from_paths([(1, 0), (0,)])
    assert parents == (-1, 0, 0, 2)  # (), (0,), (1,), (1, 0)
    assert ranks == (0, 0, 1, 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_mask_is_true_for_oneself_and_ones_ancestors_only(seed):
    tree = random_tree(Random(seed), 40, 100)
    mask = ancestor_mask(tree.parents, 43)
    for i in range(43):
        allowed = {i} | ({0, *tree.path_to(i)} if i < 40 else set())
        assert {j for j in range(43) if mask[i][j]} == allowed


@pytest.mark.parametrize("seed", range(5))
def test_networkx_round_trip(seed):
    tree = random_tree(Random(seed), 30, 100)
    tree = TokenTree(tree.tokens, tree.parents, tuple(i / 30 for i in range(30)))
    graph = to_networkx(tree)
    assert networkx.is_arborescence(graph)
    back = from_networkx(graph)

    def paths(t: TokenTree) -> set[tuple[tuple[int, ...], float]]:
        return {(tuple(t.tokens[n] for n in t.path_to(node)), t.scores[node]) for node in range(len(t))}

    assert paths(back) == paths(tree)
    again = networkx.node_link_graph(networkx.node_link_data(graph, edges="edges"), edges="edges")
    assert paths(from_networkx(again)) == paths(tree)


def test_a_graph_that_is_no_tree_is_refused():
    graph = networkx.DiGraph([(0, 2), (1, 2)])
    with pytest.raises(BadInput, match="not a tree"):
        from_networkx(graph)
