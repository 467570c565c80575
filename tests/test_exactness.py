"""Lossless by enumeration: every outcome of drafting and accepting, summed exactly. And the bugs that this must find."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.acceptance.base import Test as Decision
from specviz.acceptance.base import Verdict, follow_choice
from specviz.acceptance.greedy import greedy
from specviz.acceptance.rejection import rejection
from specviz.acceptance.typical import typical
from specviz.lab.exactness import Piece, bigram, drafts, exactness, outcomes
from specviz.sampling import Sampling, Uniform
from specviz.shapes.cartesian import cartesian
from specviz.shapes.chain import chain
from specviz.shapes.dynamic import dynamic
from specviz.shapes.eagle_25 import eagle_25
from specviz.tree import Draw, TokenTree

EXACT = 1e-9
P = bigram([[0.1, 0.5, 0.15, 0.25], [0.3, 0.1, 0.4, 0.2], [0.05, 0.15, 0.2, 0.6], [0.25, 0.25, 0.4, 0.1]])
Q = bigram([[0.4, 0.2, 0.1, 0.3], [0.25, 0.45, 0.1, 0.2], [0.3, 0.3, 0.3, 0.1], [0.1, 0.2, 0.6, 0.1]])
P3 = bigram([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.25, 0.35, 0.4]])
Q3 = bigram([[0.5, 0.2, 0.3], [0.3, 0.4, 0.3], [0.7, 0.1, 0.2]])


def wide(growth):
    return cartesian(growth, widths="3")


def bushy(growth):
    return cartesian(growth, widths="2-1")


def line(growth):
    return chain(growth, depth=3)


def short(growth):
    return chain(growth, depth=2)


@pytest.mark.parametrize(("p", "q", "shape", "length"), [(P3, Q3, line, 4), (P, Q, wide, 2), (P3, Q3, bushy, 3), (P3, Q3, lambda g: cartesian(g, widths="2-2"), 3)],
                         ids=["chain", "three siblings", "tree", "full tree"])  # fmt: skip
def test_rejection_is_exact_for_children_drawn_without_replacement(p, q, shape, length):
    found = exactness(p, drafts(q, shape, sampled=True), rejection, length=length)
    assert found.worst < EXACT, str(found)
    assert sum(found.found.values()) == pytest.approx(1.0, abs=EXACT)
    assert found.accepted > 0.5


@pytest.mark.parametrize("shape", [line, wide, bushy, lambda g: dynamic(g, nodes=6, depth=3, top_k=2)])
def test_rejection_is_exact_for_deterministic_children(shape):
    found = exactness(P, drafts(Q, shape, sampled=False), rejection, length=4)
    assert found.worst < EXACT, str(found)


@pytest.mark.parametrize("sampling", [Sampling(0.6), Sampling(1.0, top_k=2), Sampling(1.4, top_p=0.7)])
def test_rejection_is_exact_for_the_warped_distribution(sampling):
    for sampled in (True, False):
        found = exactness(P3, drafts(Q3, bushy, sampled=sampled, sampling=sampling), rejection, length=3, sampling=sampling)
        assert found.worst < EXACT, str(found)


def test_the_published_tree_is_exact_too():
    found = exactness(P, drafts(Q, lambda g: eagle_25(g), sampled=False, depth=2), rejection, length=3)
    assert found.worst < EXACT, str(found)


def with_replacement(uniform: Uniform) -> TokenTree:
    """Two children drawn from q, the second again from all of q (SpecInfer); they may be the same token."""
    q = Q((0,))
    return TokenTree((0, uniform.draw(q, 1, "draft", 0), uniform.draw(q, 1, "draft", 1)), (-1, 0, 0), draws=(Draw(0, (1, 2), q, replace=True),))


def mixed(uniform: Uniform) -> TokenTree:
    """A deterministic child, two drawn ones, another deterministic one, and a deterministic grandchild below a drawn one."""
    q = Q((0,))
    first = uniform.draw(q, 1, "draft", 0)
    second = uniform.draw(q.index_fill(0, torch.tensor([first]), 0.0), 1, "draft", 1)
    return TokenTree((0, 2, first, second, 1, 3), (-1, 0, 0, 0, 0, 2), draws=(Draw(0, (2, 3), q),))


@pytest.mark.parametrize("draft", [with_replacement, mixed])
def test_rejection_is_exact_for(draft):
    found = exactness(P, draft, rejection, length=3)
    assert found.worst < EXACT, str(found)


def test_where_the_draft_is_the_target_every_token_is_accepted():
    assert exactness(P, drafts(P, line, sampled=True), rejection, length=4).accepted == pytest.approx(3.0)


def test_where_the_draft_is_always_wrong_nothing_is_and_it_is_still_exact():
    p, q = bigram([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]]), bigram([[0.5, 0.0, 0.5]] * 3)
    found = exactness(p, drafts(q, wide, sampled=True), rejection, length=2)
    assert (found.worst < EXACT, found.accepted) == (True, 0.0), str(found)


# -- planted bugs: each must show


def keep_the_whole_q(tree, evidence):
    """Bug: q is not renormalised after a draw without replacement."""
    return rejection(replace(tree, draws=tuple(replace(draw, replace=True) for draw in tree.draws)), evidence)


def keep_the_whole_p(tree, evidence):
    """Bug: the token after a rejection comes from p instead of what is left of it."""
    verdict = rejection(tree, evidence)
    end = verdict.path[-1] if verdict.path else 0
    return replace(verdict, next_token=evidence.choice(end))


def bonus_of_the_root(tree, evidence):
    """Bug: the bonus token is drawn from the root's distribution (a stale row)."""
    verdict = rejection(tree, evidence)
    if not verdict.path or tree.children[verdict.path[-1]]:
        return verdict
    stale = evidence.uniform.draw(evidence.warped(0), evidence.position_below(verdict.path[-1]), "token")
    return replace(verdict, next_token=stale)


def one_uniform_for_all(tree, evidence):
    """Bug: siblings are tested with the same random number."""
    shared = evidence.uniform

    class Shared(Uniform):
        def __call__(self, position, purpose, index=0):
            return shared(position, purpose, 0)

        def draw(self, p, position, purpose, index=0):
            return shared.draw(p, position, purpose, 0)

    evidence.uniform = Shared(0)
    return rejection(tree, evidence)


def rerank(uniform: Uniform) -> TokenTree:
    """Bug: of three drawn children the two likeliest are kept."""
    q, kids = Q((0,)), []
    for place in range(3):
        left = q.index_fill(0, torch.tensor(kids, dtype=torch.long), 0.0)
        kids.append(uniform.draw(left, 1, "draft", place))
    kids = sorted(kids, key=lambda token: -float(q[token]))[:2]
    return TokenTree((0, *kids), (-1, 0, 0), draws=(Draw(0, (1, 2), q),))


@pytest.mark.parametrize(
    ("rule", "draft", "length", "size"),
    [
        (keep_the_whole_q, drafts(Q, wide, sampled=True), 2, 5e-3),
        (keep_the_whole_p, drafts(Q, short, sampled=True), 2, 1e-2),
        (bonus_of_the_root, drafts(Q, lambda g: chain(g, depth=1), sampled=True), 2, 1e-2),
        (one_uniform_for_all, drafts(Q, wide, sampled=True), 1, 2e-3),
        (rejection, rerank, 1, 1e-2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_shows(rule, draft, length, size):
    found = exactness(P, draft, rule, length=length)
    print(rule.__name__, found)  # noqa: T201
    assert found.worst > size, str(found)
    assert f"{found.worst:.2e}" in str(found)


def test_following_the_targets_own_choice_is_exact_for_drawn_children_too_but_accepts_less():
    def choose(tree, evidence):
        return follow_choice(tree, evidence, ("drawn", "not_drawn"))

    draft = drafts(Q3, lambda g: cartesian(g, widths="2"), sampled=True)
    found = exactness(P3, draft, choose, length=2)
    assert found.worst < EXACT, str(found)
    assert found.accepted < exactness(P3, draft, rejection, length=2).accepted


def test_typical_is_lossy_and_says_so():
    found = exactness(P, drafts(Q, line, sampled=False), typical, length=3)
    assert found.total_variation > 0.05
    assert typical.__globals__["lossless"] is False


def test_greedy_gives_the_most_likely_text():
    found = exactness(P, drafts(Q, bushy, sampled=False), greedy, length=3, sampling=Sampling(0.0))
    assert found.worst == 0.0
    assert max(found.expected, key=found.expected.get) == (1, 2, 3)


# -- the enumerator itself


def test_outcomes_sum_up_to_one_and_follow_the_lengths():
    def play(u):
        if u(0, "a") < 0.3:
            return "low"
        return f"high {u.draw(torch.tensor([0.5, 0.0, 1.5]), 0, 'b')}"

    found = {result: weight for weight, result in outcomes(play)}
    assert found == pytest.approx({"low": 0.3, "high 0": 0.7 * 0.25, "high 2": 0.7 * 0.75})


def test_the_same_key_is_the_same_number():
    found = [(weight, result) for weight, result in outcomes(lambda u: (u(0, "a") < 0.5, u(0, "a") < 0.2, 0.7 > u(0, "a")))]  # noqa: SIM300
    expected = {(True, True, True): 0.2, (True, False, True): 0.3, (False, False, True): 0.2, (False, False, False): 0.3}
    assert {result: weight for weight, result in found} == pytest.approx(expected)


@pytest.mark.parametrize("compare", [lambda u: u < 0.25, lambda u: u <= 0.25, lambda u: u > 0.25, lambda u: u >= 0.25, lambda u: 0.25 > u])  # noqa: SIM300
def test_every_comparison_cuts(compare):
    piece = Piece(0.0, 1.0)
    compare(piece)
    assert piece.cuts == {0.25}


def test_a_verdict_without_tests_is_fine():
    always = lambda tree, evidence: Verdict((), evidence.choice(0), (Decision(0, "root", ""),))
    assert exactness(P, drafts(Q, line, sampled=True), always, length=2).worst < EXACT
