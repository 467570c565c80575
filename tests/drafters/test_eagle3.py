"""The serving path of EAGLE-3 gives what its training forward gives, in the official wiring and in ours."""

from __future__ import annotations

import pytest
import torch
from drafters.served import growth_of, states_of

from specviz import shapes
from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
from specviz.drafters._memory import DraftMemory
from specviz.drafters.eagle3 import Eagle3
from specviz.drafters.eagle_module import EagleSizes
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.errors import BadFile
from specviz.registry import bind

DRAFT_VOCAB = torch.arange(2, 66) * 3
TAPS = (1, 2, 3)


def make(target, **flags):
    torch.manual_seed(3)
    like = EagleSizes.of(target.text_config, len(DRAFT_VOCAB)).to_json()
    return Eagle3Layer(Eagle3Sizes(**like, feature=target.hidden_size, taps=TAPS, own_rows=False, **flags)).eval().requires_grad_(False)


FORMS = [{}, {"residual_embedding": True, "fc_norm": True}, {"norm_before_residual": True, "norm_output": True, "norm_before_fc": True}]


@pytest.mark.parametrize("flags", FORMS)
@pytest.mark.parametrize("rounds", [[12], [5, 1, 3, 2]])
def test_serving_equals_training(tiny_target, text_ids, rounds, flags):
    layer, paths = make(tiny_target, **flags), [(7, 8), (7, 9, 4), (11, 8, 5, 6), (12,)]
    committed = text_ids(sum(rounds) + 1, seed=5)
    states = torch.cat(list(states_of(tiny_target, committed, TAPS).values()), -1)
    memory, at = DraftMemory(layer, tiny_target.model.get_input_embeddings()), 0
    for count in rounds:
        memory.enter(committed[: at + count + 1], states[at : at + count])
        at += count
    growth, places = growth_of(committed[-1], paths)
    served = {0: memory.step(growth, [0])[0]}
    for depth in range(1, 5):
        level = [node for node in places.values() if growth.depths[node] == depth]
        served |= dict(zip(level, memory.step(growth, level), strict=True))
    embed = tiny_target.model.get_input_embeddings()
    for path in paths:
        ids = [*committed, *path]
        padded = torch.zeros(1, len(ids) - 1, states.shape[1])
        padded[0, : len(committed) - 1] = states[:-1]
        outputs = layer(embed(torch.tensor([ids[1:]])).detach(), padded, len(path) + 1)
        for depth, output in enumerate(outputs):
            torch.testing.assert_close(served[places[path[:depth]]], output[0, len(committed) - 2], atol=1e-4, rtol=1e-4)


def test_taps_come_from_the_checkpoint(tiny_target, tmp_path):
    layer = make(tiny_target)
    save_head(tmp_path, HeadConfig("eagle3", layer.sizes.to_json(), tiny_target.fingerprint), layer, DRAFT_VOCAB)
    assert Eagle3(tiny_target, shape=bind(shapes, "chain"), checkpoint=str(tmp_path)).taps == TAPS
    odd = layer.sizes.to_json() | {"taps": (0, 1, 9)}
    save_head(tmp_path, HeadConfig("eagle3", odd, tiny_target.fingerprint), layer, DRAFT_VOCAB)
    with pytest.raises(BadFile, match=r"\[0, 1, 9\]; .* has layers 0 to 3"):
        Eagle3(tiny_target, shape=bind(shapes, "chain"), checkpoint=str(tmp_path))
