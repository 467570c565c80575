"""The serving path of Hydra gives what its training forward gives, with and without the prefix-attention layer."""

from __future__ import annotations

import pytest
import torch
from drafters.served import growth_of, states_of

from specviz import shapes
from specviz.drafters._hydra_module import HydraHeads, HydraSizes
from specviz.drafters._layer import LayerSizes
from specviz.drafters.base import Feedback
from specviz.drafters.eagle_module import EagleSizes
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.drafters.hydra import Hydra
from specviz.registry import bind
from specviz.sampling import Sampling, Uniform

DRAFT_VOCAB = torch.arange(2, 66) * 3


def make(target, tmp_path, prefix, shape="chain"):
    torch.manual_seed(3)
    layer = LayerSizes(**EagleSizes.of(target.text_config, len(DRAFT_VOCAB)).to_json()) if prefix else None
    module = HydraHeads(HydraSizes(target.hidden_size, 3, 2, len(DRAFT_VOCAB), prefix=layer)).eval().requires_grad_(False)
    for head in module.heads:
        torch.nn.init.normal_(head[0].linear.weight, std=0.1)
        torch.nn.init.normal_(head[1].linear.weight, std=0.1)
    save_head(tmp_path, HeadConfig("hydra", module.sizes.to_json(), target.fingerprint), module, DRAFT_VOCAB)
    kept = HydraHeads(module.sizes).eval().requires_grad_(False)
    kept.load_state_dict({name: weight.half().float() for name, weight in module.state_dict().items()})  # as it was saved
    return kept, Hydra(target, shape=bind(shapes, shape), checkpoint=str(tmp_path), precision="float32")


@pytest.mark.parametrize("prefix", [False, True])
def test_serving_equals_training(tiny_target, text_ids, tmp_path, prefix):
    module, drafter = make(tiny_target, tmp_path, prefix)
    paths, committed = [(7, 8), (7, 9), (11, 8), (12,)], text_ids(10, seed=5)
    states = states_of(tiny_target, committed, drafter.taps)[tiny_target.layers][:-1]
    state = states[-1:]
    if prefix:
        from specviz.drafters._memory import DraftMemory

        memory = DraftMemory(drafter.module.prefix, drafter.embed)
        memory.enter(committed[:5], states[:4])
        state = memory.enter(committed, states[4:])
    growth, places = growth_of(committed[-1], paths)
    rows = tiny_target.model.get_output_embeddings().weight[DRAFT_VOCAB]
    for depth in range(3):
        level = [path for path in places if len(path) == depth]
        served = drafter._step(state, growth, [places[path] for path in level])
        for log_q, path in zip(served, level, strict=True):
            ids = [*committed, *path]
            padded = torch.zeros(1, len(ids) - 1, states.shape[1])
            padded[0, : len(states)] = states
            embedding = tiny_target.model.get_input_embeddings()(torch.tensor([ids[1:]]))
            with torch.inference_mode():
                expected = (module(embedding, padded)[depth][0, len(states) - 1] @ rows.T).log_softmax(-1)
            torch.testing.assert_close(log_q, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("shape", "depth"), [("chain", 3), ("medusa_63", 3), ("dynamic", 3)])
def test_it_drafts_a_tree_as_deep_as_it_has_heads(tiny_target, text_ids, tmp_path, shape, depth):
    _, drafter = make(tiny_target, tmp_path, False, shape)
    ids = text_ids(10)
    hidden = {tap: rows[:-1] for tap, rows in states_of(tiny_target, ids, drafter.taps).items()}
    (tree,) = next(drafter.draft([Feedback(0, ids, (), hidden, None, Sampling(), Uniform(0), 50)]))
    assert max(tree.depths) == depth
    assert set(tree.tokens[1:]) <= set(DRAFT_VOCAB.tolist())


def test_children_differ_by_parent(tiny_target, text_ids, tmp_path):
    """What Medusa cannot do: two siblings get different children."""
    _, drafter = make(tiny_target, tmp_path, False)
    committed = text_ids(10)
    state = states_of(tiny_target, committed, drafter.taps)[tiny_target.layers][-2:-1]
    growth, _ = growth_of(committed[-1], [(7,), (11,)])
    one, two = drafter._step(state, growth, [1, 2])
    assert not torch.allclose(one, two, atol=1e-3)
