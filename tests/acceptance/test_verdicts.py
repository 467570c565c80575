"""What every rule says of every node of a tree made by hand."""

from __future__ import annotations

import pytest
import torch
from trees import evidence_of

from specviz.acceptance.base import verdict_column
from specviz.acceptance.greedy import greedy
from specviz.acceptance.rejection import rejection
from specviz.errors import BadInput
from specviz.tree import Draw, TokenTree

#            0
#     1(a)  2(b)  3(c)        a, b, c, d are tokens 1 to 4
#    4(a)  5(b) 6(c)  7(d)
#          8(a)
TREE = TokenTree((0, 1, 2, 3, 1, 2, 3, 4, 1), (-1, 0, 0, 0, 1, 2, 2, 3, 5), candidate=(True,) * 7 + (False, True))
SURE = {"a": [0.0, 0.7, 0.1, 0.1, 0.1], "b": [0.0, 0.1, 0.7, 0.1, 0.1], "c": [0.0, 0.1, 0.1, 0.7, 0.1], "d": [0.0, 0.1, 0.1, 0.1, 0.7]}


def test_greedy_follows_the_argmax_and_names_every_node():
    evidence = evidence_of(TREE, {0: SURE["b"], 2: SURE["b"], 5: SURE["d"]}, temperature=0.0)
    verdict = greedy(TREE, evidence)
    assert (verdict.path, verdict.next_token, verdict.next_source) == ((2, 5), 4, "target")
    assert verdict_column(TREE, verdict) == ("root", "rejected", "accepted", "untested", "unreached", "accepted", "untested", "passenger", "rejected")
    assert [(test.node, test.reason) for test in verdict.tests] == [(1, "not_argmax"), (2, "argmax"), (5, "argmax"), (8, "not_argmax")]
    assert all(test.uniform is None for test in verdict.tests)


def test_a_passenger_is_never_accepted():
    evidence = evidence_of(TREE, {0: SURE["c"], 3: SURE["d"]}, temperature=0.0)
    verdict = greedy(TREE, evidence)
    assert (verdict.path, verdict.next_token) == ((3,), 4)
    assert verdict_column(TREE, verdict)[7] == "passenger"


def test_nothing_accepted_gives_the_targets_own_token():
    verdict = greedy(TREE, evidence_of(TREE, {0: SURE["d"]}, temperature=0.0))
    assert (verdict.path, verdict.next_token) == ((), 4)
    assert verdict_column(TREE, verdict) == ("root", "rejected", "rejected", "rejected", "unreached", "unreached", "unreached", "passenger", "unreached")


def test_exact_ties_go_to_the_lowest_token():
    tie = [0.0, 0.4, 0.4, 0.1, 0.1]
    assert greedy(TREE, evidence_of(TREE, {0: tie}, temperature=0.0)).path[0] == 1


def test_of_two_children_with_one_token_the_first_counts():
    tree = TokenTree((0, 1, 1), (-1, 0, 0))
    verdict = greedy(tree, evidence_of(tree, {0: SURE["a"]}, temperature=0.0))
    assert verdict_column(tree, verdict) == ("root", "accepted", "untested")


def test_greedy_refuses_a_temperature():
    with pytest.raises(BadInput, match=r"temperature 0 only, got 0\.7.*rejection"):
        greedy(TREE, evidence_of(TREE, {0: SURE["a"]}, temperature=0.7))


def test_rejection_at_temperature_zero_is_greedy_even_for_drawn_children():
    drawn = TokenTree(TREE.tokens, TREE.parents, candidate=TREE.candidate, draws=(Draw(0, (1, 2, 3), torch.full((5,), 0.2).double()),))
    rows = {0: SURE["b"], 2: SURE["b"], 5: SURE["d"]}
    assert rejection(drawn, evidence_of(drawn, rows, temperature=0.0)) == greedy(TREE, evidence_of(TREE, rows, temperature=0.0))


def test_deterministic_children_follow_one_draw():
    """u = 0.65 lies in b's part [0.5, 0.8) of the cumulative sum; then u = 0.05 in a's."""
    rows = {0: [0.0, 0.5, 0.3, 0.1, 0.1], 2: [0.0, 0.2, 0.4, 0.2, 0.2]}
    evidence = evidence_of(TREE, rows, uniforms={(1, "token", 0): 0.65, (2, "token", 0): 0.05})
    verdict = rejection(TREE, evidence)
    assert (verdict.path, verdict.next_token, verdict.next_source) == ((2,), 1, "target")
    assert verdict_column(TREE, verdict) == ("root", "rejected", "accepted", "untested", "unreached", "rejected", "rejected", "passenger", "unreached")
    first, second = verdict.tests[:2]
    assert (first.p, first.residual_p, first.uniform, first.q) == (pytest.approx(0.5), pytest.approx(0.5), 0.65, None)
    assert second.residual_p == pytest.approx(0.3 / 0.5)  # of what b's earlier sibling left


def test_a_chain_of_drawn_tokens_is_tested_against_p_over_q():
    p, q = [0.1, 0.2, 0.3, 0.4], [0.1, 0.6, 0.2, 0.1]
    tree = TokenTree((0, 1, 3), (-1, 0, 1), draws=(Draw(0, (1,), torch.tensor(q, dtype=torch.float64)), Draw(1, (2,), torch.tensor(q, dtype=torch.float64))))
    accepted = rejection(tree, evidence_of(tree, {0: p, 1: p}, uniforms={(1, "accept", 0): 0.33, (2, "accept", 0): 0.99, (3, "token", 0): 0.9}))
    assert (accepted.path, accepted.next_token, accepted.next_source) == ((1, 2), 3, "target")
    assert [(t.p, t.q, t.limit, t.uniform) for t in accepted.tests] == [
        (pytest.approx(0.2), 0.6, pytest.approx(1 / 3), 0.33),
        (pytest.approx(0.4), 0.1, 1.0, 0.99),
    ]

    rejected = rejection(tree, evidence_of(tree, {0: p}, uniforms={(1, "accept", 0): 0.34, (1, "token", 0): 0.24}))
    # what is left: max(p - q, 0) = [0, 0, .1, .3], renormalised [0, 0, .25, .75]
    assert (rejected.path, rejected.next_token, rejected.next_source) == ((), 2, "residual")
    assert verdict_column(tree, rejected) == ("root", "rejected", "unreached")
    beyond = rejection(tree, evidence_of(tree, {0: p}, uniforms={(1, "accept", 0): 0.34, (1, "token", 0): 0.26}))
    assert beyond.next_token == 3


def test_a_second_child_is_tested_against_what_the_first_left():
    p, q = [0.1, 0.2, 0.3, 0.4], [0.2, 0.4, 0.3, 0.1]
    tree = TokenTree((0, 1, 2), (-1, 0, 0), draws=(Draw(0, (1, 2), torch.tensor(q, dtype=torch.float64)),))
    verdict = rejection(tree, evidence_of(tree, {0: p}, uniforms={(1, "accept", 0): 0.6, (1, "accept", 1): 0.0, (1, "token", 0): 0.0}))
    second = verdict.tests[1]
    # left of p: max(p - q, 0) = [0, 0, 0, .3] -> token 2 has none; left of q: [.2, 0, .3, .1] / .6
    assert (second.p, second.q, second.residual_p, second.residual_q) == (pytest.approx(0.3), pytest.approx(0.3), 0.0, pytest.approx(0.5))
    assert (second.verdict, second.limit) == ("rejected", 0.0)  # u < 0 is never true, so p = 0 is never accepted
    assert verdict.next_token == 3


def test_deterministic_children_beside_drawn_ones_name_the_residual():
    """Below an accepted drawn child there are only deterministic ones: the next token is what they left over."""
    q = torch.tensor([0.0, 1.0, 0.0, 0.0]).double()
    tree = TokenTree((0, 1, 2), (-1, 0, 1), draws=(Draw(0, (1,), q),))
    rows = {0: [0.0, 1.0, 0.0, 0.0], 1: [0.25, 0.25, 0.25, 0.25]}
    verdict = rejection(tree, evidence_of(tree, rows, uniforms={(1, "accept", 0): 0.5, (2, "accept", 0): 0.3, (2, "token", 0): 0.99}))
    assert (verdict.path, verdict.next_token, verdict.next_source) == ((1,), 3, "residual")
