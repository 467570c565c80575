"""Every foreign format is told apart, and what is read from it computes what its own program computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints import makers
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from specviz.checkpoints._files import Files, open_files
from specviz.checkpoints.base import build
from specviz.checkpoints.conversion import load
from specviz.checkpoints.doctor import detect, formats, inspect
from specviz.errors import BadFile, BadInput, Missing

T = 6


def tensors_of(folder: Path) -> dict[str, Tensor]:
    files = open_files(folder)
    return {name: files.tensor(name).float() for name in files.entries}


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * weight


def block(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x + functional.silu(x @ weight.T + bias)


@pytest.mark.parametrize("name", makers.ALL)
def test_every_format_is_detected_and_no_other_one_matches(name: str, tmp_path: Path) -> None:
    files = open_files(makers.ALL[name](tmp_path / name))
    assert detect(files)[0] == name
    assert [other for other, form in formats().items() if form.matches(files)] == [name]


def test_the_formats_are_the_files_of_the_package() -> None:
    assert set(formats()) == {*makers.ALL, "native"}


def test_medusa_v1_logits(tmp_path: Path) -> None:
    folder = makers.medusa_v1(tmp_path, heads=3, layers=2)
    head, raw, hidden = load(folder), tensors_of(folder), torch.randn(T, makers.H)
    module = build(head)
    logits = module.predict(module(hidden))
    assert head.base == "some/base"
    assert torch.equal(head.vocabulary, torch.arange(makers.V))
    for i in range(3):
        x = hidden
        for layer in range(2):
            x = block(x, raw[f"{i}.{layer}.linear.weight"], raw[f"{i}.{layer}.linear.bias"])
        torch.testing.assert_close(logits[i], x @ raw[f"{i}.2.weight"].T)


def test_medusa_full_model_gives_the_same_heads_as_its_heads_alone(tmp_path: Path) -> None:
    full, alone = load(makers.medusa_full(tmp_path / "full")), load(makers.medusa_v1(tmp_path / "alone"))
    assert full.sizes == alone.sizes
    assert all(torch.equal(full.weights[name], tensor) for name, tensor in alone.weights.items())


def test_medusa_shared_needs_the_target_for_its_vocabulary(tmp_path: Path, tiny_folder: Path) -> None:
    folder = makers.medusa_shared(tmp_path / "heads")
    with pytest.raises(BadInput, match="--target"):
        load(folder)
    head = load(folder, tiny_folder)
    assert (head.sizes.own_rows, head.sizes.draft_vocab, len(head.vocabulary)) == (0, makers.V, makers.V)


def test_medusa_vllm_logits_through_a_token_map(tmp_path: Path) -> None:
    ids = makers.draft_ids()
    folder = makers.medusa_vllm(tmp_path, more={"token_map": ids}, truncated_vocab_size=len(ids))
    head, raw, hidden = load(folder), tensors_of(folder), torch.randn(T, makers.H)
    assert torch.equal(head.vocabulary, ids)
    module = build(head)
    logits = module.predict(module(hidden))
    x = block(hidden, raw["blocks.1.layers.0.weight"], raw["blocks.1.layers.0.bias"])
    torch.testing.assert_close(logits[1], (x @ raw["lm_heads.1.weight"].T)[:, ids])


def test_medusa_vllm_with_one_lm_head(tmp_path: Path) -> None:
    folder = makers.medusa_vllm(tmp_path, drop=("lm_heads.1.weight", "lm_heads.2.weight"), original_lm_head=True)
    head, raw, hidden = load(folder), tensors_of(folder), torch.randn(T, makers.H)
    assert head.sizes.own_rows == 1
    module = build(head)
    x = block(hidden, raw["blocks.2.layers.0.weight"], raw["blocks.2.layers.0.bias"])
    torch.testing.assert_close(module.predict(module(hidden))[2], x @ raw["lm_heads.0.weight"].T)


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("grounded", [False, True])
def test_hydra_logits(prefix: bool, grounded: bool, tmp_path: Path, tiny_folder: Path) -> None:
    folder = makers.hydra(tmp_path, layers=3, prefix=prefix, grounded=grounded, hidden_state_offset=1)
    head, raw = load(folder, tiny_folder), tensors_of(folder)
    assert head.taps == (2,), "one layer before the end of a target of three"
    module = build(head)
    tokens, hidden = torch.randn(1, T, makers.H), torch.randn(1, T, makers.H)
    state = module.prefix(hidden) if prefix else hidden
    places = (1, 3, 5) if prefix else (0, 1, 2)
    for i, output in enumerate(module(tokens, hidden)):
        x = torch.cat((state[:, 0], *(tokens[:, k] for k in range(i + 1))), -1) if grounded else state[:, 0]
        name = f"hydra_mlp.{i}.{places[0]}"
        skip = x @ raw[f"{name}.res_connection.weight"].T + raw[f"{name}.res_connection.bias"] if grounded else x
        y = skip + functional.silu(x @ raw[f"{name}.linear.weight"].T + raw[f"{name}.linear.bias"])
        for place in places[1:]:
            y = block(y, raw[f"hydra_mlp.{i}.{place}.linear.weight"], raw[f"hydra_mlp.{i}.{place}.linear.bias"])
        row = f"hydra_lm_head.{i}{'.1' if prefix else ''}"
        torch.testing.assert_close(module.predict(i, output[:, 0]), y @ raw[f"{row}.weight"].T + raw[f"{row}.bias"], atol=1e-4, rtol=1e-4)


def test_hydra_prefix_layer_takes_its_shape_from_the_target(tmp_path: Path, tiny_folder: Path) -> None:
    folder = makers.hydra(tmp_path, prefix=True)
    with pytest.raises(BadInput, match="--target"):
        load(folder)
    head, raw = load(folder, tiny_folder), tensors_of(folder)
    assert (head.sizes.prefix.heads, head.sizes.prefix.kv_heads) == (makers.HEADS, makers.KV)
    assert torch.equal(build(head).prefix.norm.weight, raw["prefix_embeding_layer.norm.weight"])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
def test_eagle_reads_both_files_and_both_kinds_of_fc(bias: bool, file: str, tmp_path: Path) -> None:
    folder = makers.eagle(tmp_path, bias=bias, name=file)
    head, raw = load(folder), tensors_of(folder)
    module = build(head)
    assert torch.equal(module.fc.bias, raw["fc.bias"] if bias else torch.zeros(makers.H))
    assert torch.equal(module.q_proj.weight, raw["layers.0.self_attn.q_proj.weight"])
    assert torch.equal(module.down_proj.weight, raw["layers.0.mlp.down_proj.weight"])
    assert torch.equal(module.post_attention_layernorm.weight, raw["layers.0.post_attention_layernorm.weight"])


def test_eagle_with_biases_in_its_attention(tmp_path: Path) -> None:
    make = makers.Maker(9)
    more = {
        f"layers.0.self_attn.{part}.bias": make(makers.HEADS * makers.HD if part == "q_proj" else makers.KV * makers.HD)
        for part in ("q_proj", "k_proj", "v_proj")
    }
    head = load(makers.eagle(tmp_path, more=more, qkv_bias=True))
    assert torch.equal(build(head).k_proj.bias, more["layers.0.self_attn.k_proj.bias"].float())


def test_eagle_config_of_vllms_first_engine(tmp_path: Path) -> None:
    inner = makers.llama_config(rope_theta=5000.0)
    folder = makers.save(tmp_path, {"model_type": "eagle", "eagle_fc_bias": True, "model": inner}, makers.eagle_tensors())
    assert detect(open_files(folder))[0] == "eagle"
    assert load(folder).sizes.rope_theta == 5000.0


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
@pytest.mark.parametrize("reduced", [False, True])
def test_eagle3_reads_with_and_without_a_vocabulary_map(reduced: bool, file: str, tmp_path: Path) -> None:
    folder = makers.eagle3(tmp_path, reduced=reduced, name=file)
    head, raw = load(folder), tensors_of(folder)
    assert torch.equal(head.vocabulary, makers.draft_ids() if reduced else torch.arange(makers.V))
    module, output = build(head), torch.randn(T, makers.H)
    torch.testing.assert_close(module.predict(output), rms(output, raw["norm.weight"]) @ raw["lm_head.weight"].T, atol=1e-5, rtol=1e-5)
    states = torch.randn(1, T, 3 * makers.H)
    torch.testing.assert_close(module.combine(states), states @ raw["fc.weight"].T)
    embedding, state = torch.randn(1, T, makers.H), torch.randn(1, T, makers.H)
    both = torch.cat((rms(embedding, raw["midlayer.input_layernorm.weight"]), rms(state, raw["midlayer.hidden_norm.weight"])), -1)
    torch.testing.assert_close(module.read(embedding, state), both, atol=1e-5, rtol=1e-5)


ROPES = [
    ({"rope_theta": 5000.0}, 5000.0),
    ({"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 7000.0}}, 7000.0),
    ({"rope_theta": None}, 10000.0),
]


@pytest.mark.parametrize(("config", "theta"), ROPES, ids=["rope_theta", "rope_parameters", "neither"])
def test_eagle3_respects_its_own_rotary_base_in_every_form(config: dict, theta: float, tmp_path: Path, tiny_folder: Path) -> None:
    assert load(makers.eagle3(tmp_path, **config), tiny_folder).sizes.rope_theta == theta


TAPS = [
    ({}, (2, 1, 0)),  # the official layers of a target of three: 2, L//2, L-3
    ({"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}, (0, 1, 3)),
    ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}}, (1, 2, 3)),
]


@pytest.mark.parametrize(("config", "taps"), TAPS, ids=["default", "at the top", "below eagle_config, counted as outputs"])
def test_eagle3_taps(config: dict, taps: tuple, tmp_path: Path, tiny_folder: Path) -> None:
    head = load(makers.eagle3(tmp_path, **config), tiny_folder)
    assert head.taps == head.sizes.taps == taps


def test_eagle3_with_fc_bias_and_the_norms_of_31(tmp_path: Path) -> None:
    make = makers.Maker(8)
    more = {"fc.bias": make(makers.H)} | {f"fc_norm.{i}.weight": make.norm() for i in range(3)}
    head = load(makers.eagle3(tmp_path, more=more, fc_norm=True, norm_output=True))
    assert (head.sizes.fc_bias, head.sizes.fc_norm, head.sizes.norm_output) == (True, True, True)
    assert torch.equal(build(head).fc_norm[2].weight, more["fc_norm.2.weight"].float())


def test_eagle3_smaller_than_its_target_keeps_its_own_embedding(tmp_path: Path) -> None:
    make = makers.Maker(8)
    table = make(makers.V, makers.H)
    folder = makers.eagle3(tmp_path, more={"fc.weight": make(makers.H, 3 * 128), "embed_tokens.weight": table}, target_hidden_size=128)
    head = load(folder)
    assert (head.sizes.feature, head.sizes.own_embedding) == (128, True)
    assert torch.equal(build(head).embed(torch.tensor([5, 6]), torch.zeros(0)), table[[5, 6]].float())


def test_eagle3_keeps_embeddings_that_are_not_the_targets(tmp_path: Path, tiny_folder: Path) -> None:
    table = load_file(tiny_folder / "model.safetensors")["model.embed_tokens.weight"]
    same = load(makers.eagle3(tmp_path / "same", more={"embed_tokens.weight": table.half()}), tiny_folder)
    other = load(makers.eagle3(tmp_path / "other", more={"embed_tokens.weight": table.half() + 0.5}), tiny_folder)
    assert (same.sizes.own_embedding, other.sizes.own_embedding) == (False, True)


def test_speculators_reads_the_same_head_as_the_official_form(tmp_path: Path) -> None:
    ours, theirs = load(makers.eagle3(tmp_path / "a")), load(makers.speculators(tmp_path / "b", norm_before_residual=False))
    assert ours.sizes == theirs.sizes
    assert torch.equal(ours.vocabulary, theirs.vocabulary)
    assert all(torch.equal(ours.weights[name], tensor) for name, tensor in theirs.weights.items())
    assert theirs.base == "some/base"


def test_a_weights_file_can_be_named_itself(tmp_path: Path) -> None:
    folder = makers.medusa_v1(tmp_path)
    assert inspect(folder / "medusa_lm_head.pt").format == "medusa_v1"


def test_what_is_no_head_is_said_so(tmp_path: Path) -> None:
    folder = makers.save(tmp_path / "model", makers.llama_config(), {"model.embed_tokens.weight": torch.zeros(4, 4)})
    with pytest.raises(BadFile, match="no head of a known format"):
        load(folder)
    old = makers.save(tmp_path / "old", {}, {"fusion_fc.weight": torch.zeros(4, 8)})
    assert "EAGLE-1 head of the speculators library" in inspect(old).problems[0].text
    with pytest.raises(Missing, match="There is no"):
        load(tmp_path / "nowhere")


def test_reading_is_lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full model is told apart by its headers: no tensor of it is read."""
    folder = makers.medusa_full(tmp_path)
    read: list[str] = []
    whole: Callable = Files.tensor
    monkeypatch.setattr(Files, "tensor", lambda self, name: (read.append(name), whole(self, name))[1])
    detect(open_files(folder))
    assert read == []
    load(folder)
    assert read
    assert all(name.startswith("medusa_head.") for name in read)


def test_config_numbers_are_checked_before_anything_is_sized_by_them(tmp_path: Path) -> None:
    for key, value in (("hidden_size", 10**12), ("num_attention_heads", "four"), ("intermediate_size", -1), ("vocab_size", True)):
        folder = makers.eagle(tmp_path / key, **{key: value})
        found = inspect(folder)
        assert not found.usable
        assert key in " ".join(problem.text for problem in found.problems)


def test_config_that_is_no_object(tmp_path: Path) -> None:
    folder = makers.eagle(tmp_path)
    (folder / "config.json").write_text(json.dumps([1, 2]))
    with pytest.raises(BadFile, match="expected an object"):
        load(folder)
