from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
import torch
from trees import evidence_of, random_tree

from specviz.evidence import Evidence, Gathered, draw_rows, gather
from specviz.largest import BLOCK
from specviz.sampling import Sampling, Uniform, draw, warp
from specviz.tree import TokenTree

TREE = random_tree(Random(2), 12, 30)
LOGITS = torch.randn(14, 30, generator=torch.Generator().manual_seed(1)) * 2  # two rows of padding


def evidence(temperature: float = 0.8, **sampling: float) -> Evidence:
    return Evidence(TREE, LOGITS, Sampling(temperature, **sampling), Uniform(4), 9)


def test_positions_count_from_the_root():
    assert [evidence().position_below(node) for node in range(12)] == [10 + depth for depth in TREE.depths]


@pytest.mark.parametrize("sampling", [{"temperature": 0.8}, {"temperature": 1.0, "top_p": 0.7}, {"temperature": 0.0}])
def test_choice_is_what_plain_decoding_would_emit(sampling):
    found = evidence(**sampling)
    for node in range(12):
        row = warp(LOGITS[node : node + 1], found.sampling)[0]
        expected = int(row.argmax()) if found.sampling.greedy else draw(row, Uniform(4)(found.position_below(node), "token"))
        assert found.choice(node) == expected
        assert found.probability(node, 3) == pytest.approx(float(row[3]))


def test_columns_are_what_their_names_say():
    found = evidence(0.8, top_p=0.9)
    also = next(node for node in range(12) if not TREE.children[node])
    found.choice(0)  # as a rule does: only nodes it visited, and the end of the path, have a wanted token above temperature 0
    columns = found.columns(also=[also], top=3)
    raw, warped = LOGITS[:12].softmax(-1), warp(LOGITS[:12], found.sampling)
    assert columns.p[0] is None
    for node in range(1, 12):
        parent, token = TREE.parents[node], TREE.tokens[node]
        assert columns.p[node] == pytest.approx(float(raw[parent, token]), rel=1e-5)
        assert columns.p_warped[node] == pytest.approx(float(warped[parent, token]), abs=1e-9)
        assert columns.target_rank[node] == sum(1 for p in LOGITS[parent] if p > LOGITS[parent, token])
    for node in range(12):
        inner = bool(TREE.children[node]) or node == also
        assert (node in columns.tops, columns.entropy[node] is not None) == (inner,) * 2
        assert columns.wanted[node] == (found.choice(node) if node in (0, also) else None)
        if inner:
            assert columns.entropy[node] == pytest.approx(float(-(raw[node] * raw[node].log()).sum()), rel=1e-5)
            assert [token for token, _ in columns.tops[node]] == raw[node].topk(3).indices.tolist()
            assert columns.tops[node][0][1] == pytest.approx(float(raw[node].max()), abs=1e-6)


def test_columns_of_a_root_alone():
    columns = evidence_of(TokenTree((1,), (-1,)), {0: [0.5, 0.25, 0.25]}).columns()
    assert (columns.p, columns.tops) == ((None,), {})
    alone = evidence_of(TokenTree((1,), (-1,)), {0: [0.5, 0.25, 0.25]}, uniforms={(1, "token", 0): 0.6}).columns(also=[0])
    assert (alone.wanted, alone.entropy[0]) == ((1,), pytest.approx(1.5 * math.log(2)))


def test_at_temperature_zero_warped_p_is_one_or_nothing():
    assert set(evidence(0.0).columns().p_warped[1:]) <= {0.0, 1.0}


@pytest.mark.parametrize("temperature", [0.0, 1e-310, 1.0])
def test_tokens_that_are_ruled_out_spoil_no_number(temperature):
    """A logit of -inf, and a temperature so small that logits / temperature overflows."""
    tree = TokenTree((0, 1, 2), (-1, 0, 0))
    columns = evidence_of(tree, {0: [0.25, 0.75, 0.0]}, temperature, uniforms={(1, "token", 0): 0.5}).columns(also=[0])
    assert columns.p[1:] == pytest.approx((0.75, 0.0))
    assert columns.p_warped[1:] == pytest.approx((1.0 if temperature < 1 else 0.75, 0.0))
    assert columns.entropy[0] == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    assert columns.target_rank[1:] == (0, 2)
    assert columns.tops[0] == ((1, 0.75), (0, 0.25), (2, 0.0))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8), Sampling(1.0, top_p=0.9)])
def test_columns_of_a_large_vocabulary_are_those_of_whole_rows(sampling):
    """Rows are searched by blocks there, and tokens far from the best are counted."""
    rng = Random(5)
    tree = random_tree(rng, 20, 4 * BLOCK)
    logits = torch.randn(20, 4 * BLOCK, generator=torch.Generator().manual_seed(3)) * 2
    tree = replace(
        tree, tokens=(tree.tokens[0], *(int(logits[parent].argmax()) if node % 2 else tree.tokens[node] for node, parent in enumerate(tree.parents) if node))
    )
    columns = Evidence(tree, logits, sampling, Uniform(4), 9).columns(also=[19])
    raw, warped = logits.softmax(-1), warp(logits, sampling)
    for node in range(1, 20):
        parent, token = tree.parents[node], tree.tokens[node]
        assert columns.p[node] == pytest.approx(float(raw[parent, token]), rel=1e-5)
        assert columns.p_warped[node] == pytest.approx(float(warped[parent, token]), abs=1e-7)
        assert columns.target_rank[node] == int((logits[parent] > logits[parent, token]).sum())
        assert [token for token, _ in columns.tops[parent]] == raw[parent].topk(5).indices.tolist()


# -- fetched in one go


def pair_of(sampling: Sampling, seed: int = 0) -> tuple[Evidence, Gathered]:
    tree = random_tree(Random(seed), 12, 30)
    logits = torch.randn(14, 30, generator=torch.Generator().manual_seed(seed)) * 2
    lazy, eager = Evidence(tree, logits, sampling, Uniform(4), 9), Gathered(tree, logits, sampling, Uniform(4), 9)
    eager.enqueue_columns(5)
    gather([eager])
    return lazy, eager


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8), Sampling(1.0, top_p=0.7), Sampling(1.3, top_k=4)])
def test_gathered_evidence_says_what_evidence_says(sampling):
    lazy, eager = pair_of(sampling)
    assert lazy.argmax == eager.argmax
    for node in (0, 3, 7):
        assert lazy.choice(node) == eager.choice(node)
        assert torch.allclose(lazy.warped(node), eager.warped(node))
        assert torch.equal(lazy.tempered(node), eager.tempered(node))
        for token in (lazy.tree.tokens[5], 2):
            assert lazy.probability(node, token) == pytest.approx(eager.probability(node, token))
    a, b = lazy.columns(also=[11], top=3), eager.columns(also=[11], top=3)
    assert (a.target_rank, a.wanted) == (b.target_rank, b.wanted)
    for name in ("p", "p_warped", "entropy"):
        assert list(getattr(b, name)) == [None if x is None else pytest.approx(x, rel=1e-5) for x in getattr(a, name)]
    assert {node: [t for t, _ in top] for node, top in a.tops.items()} == {node: [t for t, _ in top] for node, top in b.tops.items()}


def test_rows_are_drawn_as_single_ones_are():
    p = torch.rand(40, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p[:, 40:] = 0.0  # the last tokens have no mass
    p[::2, :5] = 0.0
    p /= p.sum(-1, keepdim=True)
    for u in (0.0, 0.3, 0.999999, 1.0 - 2.0**-53):
        assert draw_rows(p, torch.full((40,), u, dtype=torch.float64)).tolist() == [draw(row, u) for row in p]
