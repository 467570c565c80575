"""Medusa serves what it trains: the head of each depth, read from the state before the root."""

from __future__ import annotations

import pytest
import torch

from specviz import shapes
from specviz.drafters.base import Feedback
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.drafters.heads import draft_rows
from specviz.drafters.medusa import Medusa
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.errors import BadFile, Missing
from specviz.registry import bind
from specviz.sampling import Sampling, Uniform

DRAFT_VOCAB = torch.arange(2, 66) * 3


@pytest.fixture
def heads(tiny_target):
    torch.manual_seed(3)
    made = MedusaHeads(MedusaSizes(tiny_target.hidden_size, 3, 1, len(DRAFT_VOCAB)))
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return made.half().float().eval().requires_grad_(False)


@pytest.fixture
def folder(tmp_path, tiny_target, heads):
    save_head(tmp_path, HeadConfig("medusa", heads.sizes.to_json(), tiny_target.fingerprint), heads, DRAFT_VOCAB)
    return tmp_path


def first_tree(target, folder, shape, knobs=None, room=20):
    torch.manual_seed(0)
    states = torch.randn(4, target.hidden_size)
    seen = Feedback(0, (5, 6, 7, 8, 9), (), {target.layers: states}, None, Sampling(), Uniform(0), room)
    drafter = Medusa(target, shape=bind(shapes, shape, knobs or {}), checkpoint=str(folder), precision="float32")
    (tree,) = next(drafter.draft([seen]))
    return tree, states


def test_untrained_heads_repeat_the_lm_head(tiny_target):
    made = MedusaHeads(MedusaSizes(tiny_target.hidden_size, 2, 2, 8))
    state = torch.randn(5, tiny_target.hidden_size)
    assert torch.equal(made(state), torch.stack([state, state]))


def test_level_d_holds_the_choices_of_head_d(tiny_target, folder, heads):
    tree, states = first_tree(tiny_target, folder, "cartesian", {"widths": "2-2-1"})
    rows = draft_rows(tiny_target.model.get_output_embeddings(), DRAFT_VOCAB)
    log_q = (heads(states[-1]) @ rows.T).log_softmax(-1)  # what training computes at the same row
    for node in range(1, len(tree)):
        depth = tree.depths[node]
        top = DRAFT_VOCAB[log_q[depth - 1].topk(2).indices].tolist()
        assert tree.tokens[node] in top
        assert tree.scores[node] == pytest.approx(float(log_q[depth - 1, DRAFT_VOCAB.tolist().index(tree.tokens[node])].exp()), abs=1e-4)
    assert len(tree) == 1 + 2 + 4 + 4


@pytest.mark.parametrize("shape", ["medusa_63", "chain", "dynamic"])
def test_no_tree_is_deeper_than_its_heads(tiny_target, folder, shape):
    assert max(first_tree(tiny_target, folder, shape)[0].depths) == 3
    assert max(first_tree(tiny_target, folder, shape, room=1)[0].depths) == 1


def test_a_missing_or_foreign_head_is_named(tiny_target, folder, tmp_path):
    with pytest.raises(Missing, match="train medusa"):
        first_tree(tiny_target, tmp_path / "nothing", "chain")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"medusa"', '"eagle"'))
    with pytest.raises(BadFile, match="expected 'medusa'"):
        first_tree(tiny_target, folder, "chain")
    (folder / "config.json").write_text(config.replace('"heads": 3', '"heads": 2'))
    with pytest.raises(BadFile, match="does not fit"):
        first_tree(tiny_target, folder, "chain")
