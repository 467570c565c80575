"""The serving path of EAGLE gives what its training forward gives: for every depth and branch, with several rounds behind it."""

from __future__ import annotations

import copy

import pytest
import torch
from drafters.served import growth_of

from specviz import shapes
from specviz.drafters._memory import DraftMemory
from specviz.drafters.base import Feedback
from specviz.drafters.eagle import Eagle
from specviz.drafters.eagle_module import EagleLayer, EagleSizes
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.errors import BadFile, BadInput
from specviz.registry import bind
from specviz.sampling import Sampling, Uniform
from specviz.sources import Fingerprint

DRAFT_VOCAB = torch.arange(2, 66) * 3


@pytest.fixture
def layer(tiny_target):
    torch.manual_seed(3)
    return EagleLayer(EagleSizes.of(tiny_target.text_config, len(DRAFT_VOCAB))).eval().requires_grad_(False)


@pytest.fixture
def folder(tmp_path, tiny_target, layer):
    config = HeadConfig("eagle", layer.sizes.to_json(), tiny_target.fingerprint)
    save_head(tmp_path / "eagle", config, layer, DRAFT_VOCAB)
    return tmp_path / "eagle"


def features_of(target, ids):
    with torch.inference_mode():
        return target.model.get_decoder()(input_ids=torch.tensor([list(ids)]), use_cache=False).last_hidden_state[0].clone()


@pytest.mark.parametrize("rounds", [[12], [5, 1, 3, 2], [1, 1, 1]])
@pytest.mark.parametrize("paths", [[(7, 8, 9, 10)], [(7, 8), (7, 9, 4), (11, 8, 5, 6), (12,)]])
def test_serving_equals_training(tiny_target, layer, text_ids, rounds, paths):
    committed = text_ids(sum(rounds) + 1, seed=5)  # the last one is the root, which the target has not seen
    truth = features_of(tiny_target, committed)
    memory, at = DraftMemory(layer, tiny_target.model.get_input_embeddings()), 0
    for count in rounds:
        memory.enter(committed[: at + count + 1], truth[at : at + count])
        at += count
    growth, places = growth_of(committed[-1], paths)
    served = {0: memory.step(growth, [0])[0]}
    for depth in range(1, 1 + max(map(len, paths))):
        level = [node for node in places.values() if growth.depths[node] == depth]
        served |= dict(zip(level, memory.step(growth, level), strict=True))
    for path in paths:
        expected = unrolled(layer, tiny_target, [*committed, *path], truth[: len(committed) - 1], len(path) + 1)
        for depth in range(len(path) + 1):
            torch.testing.assert_close(served[places[path[:depth]]], expected[depth], atol=1e-4, rtol=1e-4)


def unrolled(layer, target, ids, features, steps):
    """The training forward at the last true row, with the tokens of one path fed step by step."""
    rows = len(features)
    padded = torch.zeros(1, len(ids) - 1, features.shape[1])
    padded[0, :rows] = features
    embedding = target.model.get_input_embeddings()(torch.tensor([ids[1:]])).detach()
    return [output[0, rows - 1] for output in layer(embedding, padded, steps)]


def test_a_long_prompt_enters_in_pieces(tiny_target, layer, text_ids, monkeypatch):
    ids = text_ids(40, seed=1)
    truth = features_of(tiny_target, ids)[:-1]
    whole = DraftMemory(layer, tiny_target.model.get_input_embeddings())
    whole.enter(ids, truth)
    monkeypatch.setattr("specviz.drafters._memory.ENTER_CHUNK", 7)
    pieces = DraftMemory(layer, tiny_target.model.get_input_embeddings())
    pieces.enter(ids, truth)
    growth, _ = growth_of(ids[-1], [(5,)])
    torch.testing.assert_close(whole.step(growth, [0]), pieces.step(growth, [0]), atol=1e-5, rtol=1e-5)


def feedback(target, ids, temperature=0.0, room=50):
    return Feedback(0, ids, (), {target.layers: features_of(target, ids)[:-1]}, None, Sampling(temperature), Uniform(0), room)


@pytest.mark.parametrize(("shape", "knobs"), [("dynamic", {"nodes": 9, "depth": 3, "top_k": 3}), ("eagle_25", {}), ("chain", {})])
def test_it_drafts_a_tree(tiny_target, folder, text_ids, shape, knobs):
    drafter = Eagle(tiny_target, shape=bind(shapes, shape, knobs), checkpoint=str(folder))
    ids = text_ids(10)
    flow = drafter.draft([feedback(tiny_target, ids)])
    (tree,) = next(flow)
    assert tree.tokens[0] == ids[-1]
    assert set(tree.tokens[1:]) <= set(DRAFT_VOCAB.tolist())
    assert len(tree) > 3
    flow.close()


def test_room_limits_the_depth(tiny_target, folder, text_ids):
    drafter = Eagle(tiny_target, shape=bind(shapes, "dynamic", {}), checkpoint=str(folder))
    (tree,) = next(drafter.draft([feedback(tiny_target, text_ids(10), room=2)]))
    assert max(tree.depths) == 2
    (tree,) = next(drafter.draft([feedback(tiny_target, text_ids(10), room=0)]))
    assert len(tree) == 1


def test_sampled_children_carry_their_distribution(tiny_target, folder, text_ids):
    drafter = Eagle(tiny_target, shape=bind(shapes, "eagle_25", {}), children="sampled", checkpoint=str(folder))
    (tree,) = next(drafter.draft([feedback(tiny_target, text_ids(10), temperature=1.0)]))
    assert tree.draws
    (greedy,) = next(drafter.draft([feedback(tiny_target, text_ids(10), temperature=0.0)]))
    assert not greedy.draws


def test_another_target_is_noticed_and_runs(tiny_target, tmp_path, layer, text_ids):
    config = HeadConfig("eagle", layer.sizes.to_json(), Fingerprint("0" * 16))
    save_head(tmp_path, config, layer, DRAFT_VOCAB)
    with pytest.warns(UserWarning, match="trained against another target"):
        drafter = Eagle(tiny_target, shape=bind(shapes, "chain", {}), checkpoint=str(tmp_path))
    assert drafter.describe()["warnings"]
    (tree,) = next(drafter.draft([feedback(tiny_target, text_ids(10))]))
    assert len(tree) > 1


def test_a_head_of_another_width_is_refused(tiny_target, make_target, folder):
    wide = make_target("llama", hidden_size=96, head_dim=16)
    with pytest.raises(BadInput, match=f"width {tiny_target.hidden_size}, but .* has 96"):
        Eagle(wide, shape=bind(shapes, "chain"), checkpoint=str(folder))


def test_a_head_that_is_not_finite_is_refused(tiny_target, tmp_path, layer):
    layer.fc.weight.data[0, 0] = float("nan")
    save_head(tmp_path / "eagle", HeadConfig("eagle", layer.sizes.to_json(), tiny_target.fingerprint), layer, DRAFT_VOCAB)
    with pytest.raises(BadFile, match=r"not finite in fc\.weight"):
        Eagle(tiny_target, shape=bind(shapes, "chain"), checkpoint=str(tmp_path / "eagle"))


@pytest.mark.parametrize(("kind", "kept"), [("default", False), ("llama3", True), ("yarn", False)])
def test_the_target_s_rotary_scaling_is_taken_over_where_a_layer_can_have_it(tiny_target, kind, kept):
    config = copy.deepcopy(tiny_target.text_config)
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    config.rope_parameters = {"rope_type": kind, "rope_theta": 5000.0} | scaling
    sizes = EagleSizes.of(config, 8)
    assert sizes.rope_theta == 5000.0
    assert sizes.rope_scaling == ({"rope_type": kind} | scaling if kept else None)
    EagleLayer(sizes)


def test_positions_turn_by_exact_angles_in_every_dtype(layer):
    """Frequencies rounded to bfloat16 would turn position 1000 by another angle altogether."""
    exact, positions = layer.frequencies.clone(), torch.arange(0, 2000, 97)
    expected = layer.turn(positions, torch.float32)
    rounded = copy.deepcopy(layer).to(torch.bfloat16)
    assert torch.equal(rounded.frequencies, exact)
    found = rounded.turn(positions, torch.float32)
    assert torch.equal(found.cos, expected.cos)
    assert torch.equal(found.sin, expected.sin)


def test_both_rotations_are_one(layer):
    x = torch.randn(1, 5, layer.sizes.hidden)
    turn = layer.turn(torch.arange(3, 8), torch.float32)
    one, other = layer.turned(x, turn), layer.turned(x, turn.widen())
    torch.testing.assert_close(one.query, other.query)
    torch.testing.assert_close(one.key, other.key)
