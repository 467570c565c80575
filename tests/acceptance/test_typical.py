from __future__ import annotations

import math

import pytest
from trees import evidence_of

from specviz.acceptance.base import verdict_column
from specviz.acceptance.greedy import greedy
from specviz.acceptance.typical import typical
from specviz.tree import TokenTree

#       0
#    1     2          tokens 1 and 2
#   3      4 5
TREE = TokenTree((0, 1, 2, 1, 1, 2), (-1, 0, 0, 1, 2, 2))
FLAT = [0.25, 0.25, 0.25, 0.25]
TOKEN = {(position, "token", 0): 0.0 for position in range(4)}


def test_the_limit_is_min_of_epsilon_and_delta_exp_minus_entropy():
    verdict = typical(TREE, evidence_of(TREE, {0: FLAT}, uniforms=TOKEN), epsilon=0.9, delta=0.4)
    assert verdict.tests[0].limit == pytest.approx(0.4 * math.exp(-math.log(4)))  # entropy of four equal tokens: ln 4
    assert typical(TREE, evidence_of(TREE, {0: FLAT}, uniforms=TOKEN), epsilon=0.05, delta=0.4).tests[0].limit == 0.05


def test_the_limit_itself_is_not_enough():
    assert typical(TREE, evidence_of(TREE, {0: FLAT}, uniforms=TOKEN), epsilon=0.25, delta=1.0).path == ()
    assert typical(TREE, evidence_of(TREE, {0: FLAT}, uniforms=TOKEN), epsilon=0.2499, delta=1.0).path != ()


def test_the_longest_path_wins_then_the_likeliest_and_the_others_are_named():
    rows = {0: [0.1, 0.5, 0.3, 0.1], 1: [0.95, 0.01, 0.02, 0.02], 2: [0.1, 0.3, 0.5, 0.1]}
    verdict = typical(TREE, evidence_of(TREE, rows, uniforms=TOKEN))
    assert verdict.path == (2, 5)
    assert verdict_column(TREE, verdict) == ("root", "passed_not_chosen", "accepted", "rejected", "passed_not_chosen", "accepted")
    assert {test.node: test.reason for test in verdict.tests} == {
        1: "longer_path_won",
        2: "typical",
        3: "below_typical_limit",
        4: "longer_path_won",
        5: "typical",
    }


def test_what_hangs_below_a_rejected_node_is_unreached():
    verdict = typical(TREE, evidence_of(TREE, {0: [0.01, 0.97, 0.01, 0.01], 1: FLAT}, uniforms=TOKEN), epsilon=0.3, delta=1.0)
    assert verdict_column(TREE, verdict)[4:] == ("unreached", "unreached")


def test_p_is_tempered_but_not_filtered():
    evidence = evidence_of(TREE, {0: FLAT}, temperature=2.0, uniforms=TOKEN, top_k=1)
    assert typical(TREE, evidence).tests[0].p == pytest.approx(0.25)


@pytest.mark.parametrize(("bonus", "token"), [("argmax", 3), ("sampled", 0)])
def test_the_bonus_is_drawn_or_the_argmax(bonus, token):
    last = [0.3, 0.1, 0.2, 0.4]
    tree = TokenTree((0, 1), (-1, 0))
    verdict = typical(tree, evidence_of(tree, {0: [0.0, 1.0, 0.0, 0.0], 1: last}, uniforms=TOKEN), bonus=bonus)
    assert (verdict.path, verdict.next_token) == ((1,), token)


def test_epsilon_zero_accepts_all_that_is_possible():
    verdict = typical(TREE, evidence_of(TREE, {0: [0.5, 0.5, 0.0, 0.0], 1: FLAT}, uniforms=TOKEN), epsilon=0.0)
    assert verdict.path == (1, 3)


def test_at_temperature_zero_it_is_greedy():
    rows = {0: [0.1, 0.2, 0.6, 0.1], 2: [0.1, 0.6, 0.2, 0.1]}
    assert typical(TREE, evidence_of(TREE, rows, 0.0), epsilon=0.0) == greedy(TREE, evidence_of(TREE, rows, 0.0))
