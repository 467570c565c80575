"""The draft modules against transformers' own Llama parts, which the official heads are made of."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
from specviz.drafters._hydra_module import HydraHeads, HydraSizes
from specviz.drafters._layer import LayerSizes, rope_frequencies
from specviz.drafters.eagle_module import EagleLayer, EagleSizes
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.errors import BadInput

SIZES = {"hidden": 64, "intermediate": 96, "heads": 4, "kv_heads": 2, "head_dim": 16, "rope_theta": 10000.0, "norm_eps": 1e-5, "draft_vocab": 40}
T = 7


def config() -> LlamaConfig:
    return LlamaConfig(
        hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=1, rms_norm_eps=1e-5,
        vocab_size=50, rope_theta=10000.0, attn_implementation="eager",
    )  # fmt: skip


def shake(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random weights everywhere, also where a module starts from zeros or ones."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            fresh = torch.randn(weight.shape, generator=chance) * 0.2
            weight.copy_(1 + fresh if "norm" in name else fresh)
    return module.eval()


def llama_layer(module: nn.Module, width: int) -> LlamaDecoderLayer:
    """A transformers layer with our module's weights; its attention reads `width` numbers."""
    layer = LlamaDecoderLayer(config(), 0).eval()
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        setattr(layer.self_attn, name, getattr(module, name))
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(layer.mlp, name, getattr(module, name))
    layer.post_attention_layernorm.weight = module.post_attention_layernorm.weight
    assert layer.self_attn.q_proj.in_features == width
    return layer


def attention(layer: LlamaDecoderLayer, x: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(x.shape[1])[None]
    rotary = LlamaRotaryEmbedding(config())(x, positions)
    mask = torch.full((x.shape[1], x.shape[1]), torch.finfo(torch.float32).min).triu(1)[None, None]
    return layer.self_attn(x, position_embeddings=rotary, attention_mask=mask)[0]


def after(layer: LlamaDecoderLayer, residual: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    x = residual + attended
    return x + layer.mlp(layer.post_attention_layernorm(x))


def rms(x: torch.Tensor, norm: nn.Module) -> torch.Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.weight


def test_eagle_is_a_llama_layer_without_input_norm() -> None:
    module = shake(EagleLayer(EagleSizes(**SIZES)))
    embedding, feature = torch.randn(2, T, 64), torch.randn(2, T, 64)
    x = module.fc(torch.cat((embedding, feature), -1))
    layer = llama_layer(module, 64)
    torch.testing.assert_close(module(embedding, feature)[0], after(layer, x, attention(layer, x)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("before", [False, True])
def test_eagle3_wiring(before: bool) -> None:
    module = shake(Eagle3Layer(Eagle3Sizes(**SIZES, feature=64, norm_before_residual=before)))
    embedding, states = torch.randn(2, T, 64), torch.randn(2, T, 192)
    state = module.fc(states)
    x = torch.cat((rms(embedding, module.input_layernorm), rms(state, module.hidden_norm)), -1)
    layer = llama_layer(module, 128)
    residual = rms(state, module.hidden_norm) if before else state
    output = after(layer, residual, attention(layer, x))
    torch.testing.assert_close(module(embedding, states)[0], output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(module.predict(output), rms(output, module.norm) @ module.lm_head.weight.T, atol=1e-5, rtol=1e-5)


def test_eagle3_norms_of_version_31() -> None:
    states = torch.randn(1, T, 192)
    each = shake(Eagle3Layer(Eagle3Sizes(**SIZES, feature=64, fc_norm=True, norm_output=True)))
    parts = [rms(part, norm) for part, norm in zip(states.split(64, -1), each.fc_norm, strict=True)]
    torch.testing.assert_close(each.combine(states), each.fc(torch.cat(parts, -1)), atol=1e-5, rtol=1e-5)
    output = torch.randn(1, T, 64)
    torch.testing.assert_close(each.feedback(output), rms(output, each.norm), atol=1e-5, rtol=1e-5)
    whole = shake(Eagle3Layer(Eagle3Sizes(**SIZES, feature=64, norm_before_fc=True)))
    torch.testing.assert_close(whole.combine(states), whole.fc(rms(states, whole.input_norm)), atol=1e-5, rtol=1e-5)
    assert torch.equal(whole.feedback(output), output)


@pytest.mark.parametrize("unroll", [2, 3])
def test_eagle3_unroll_equals_serving_step_by_step(unroll: int) -> None:
    """The last row of a draft step in training equals drafting one token at a time from a cache of true rows."""
    module = shake(Eagle3Layer(Eagle3Sizes(**SIZES, feature=64)))
    embedding, states = torch.randn(1, T, 64), torch.randn(1, T, 192)
    trained = module(embedding, states, unroll)
    start = T - unroll  # a row whose later embeddings are still inside the sequence
    state = module.combine(states[:, : start + 1])
    rows = module.project(module.read(embedding[:, : start + 1], state), torch.arange(start + 1))
    output = trained[0][:, start : start + 1]
    keys, values = rows.key, rows.value
    for s in range(1, unroll):
        step = module.project(module.read(embedding[:, start + s : start + s + 1], module.feedback(output)), torch.tensor([start + s]))
        keys, values = torch.cat((keys, step.key), 2), torch.cat((values, step.value), 2)
        output = module.finish(output, module.attend(step.query, keys, values, torch.zeros(1, keys.shape[2])))
        torch.testing.assert_close(output, trained[s][:, start : start + 1], atol=1e-5, rtol=1e-5)


def test_hydra_prefix_is_a_llama_model() -> None:
    module = shake(HydraHeads(HydraSizes(64, 2, 2, 40, own_rows=True, prefix=LayerSizes(**SIZES))))
    llama = LlamaModel(config()).eval()
    llama.layers[0] = llama_layer(module.prefix, 64)
    llama.layers[0].input_layernorm.weight, llama.norm.weight = module.prefix.input_layernorm.weight, module.prefix.norm.weight
    hidden = torch.randn(2, T, 64)
    torch.testing.assert_close(module.prefix(hidden), llama(inputs_embeds=hidden).last_hidden_state, atol=1e-5, rtol=1e-5)


def test_hydra_heads_read_the_tokens_before_them() -> None:
    module = shake(HydraHeads(HydraSizes(64, 3, 2, 40, own_rows=True)))
    tokens, hidden = torch.randn(1, T, 64), torch.randn(1, T, 64)
    outputs = module(tokens, hidden)
    for head in range(3):
        x = torch.cat((hidden[:, 0], *(tokens[:, k] for k in range(head + 1))), -1)
        first, second = module.heads[head]
        y = x @ first.skip.weight.T + first.skip.bias + functional.silu(x @ first.linear.weight.T + first.linear.bias)
        y = y + functional.silu(y @ second.linear.weight.T + second.linear.bias)
        torch.testing.assert_close(outputs[head][:, 0], y, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(module.predict(head, y), y @ module.rows[head].weight.T + module.rows[head].bias, atol=1e-5, rtol=1e-5)
    changed = tokens.clone()
    changed[:, 2] += 1
    assert torch.equal(module(changed, hidden)[1][:, 0], outputs[1][:, 0]), "head 2 must not see the third token"
    assert not torch.equal(module(changed, hidden)[2][:, 0], outputs[2][:, 0]), "head 3 must see it"


@pytest.mark.parametrize("own", [0, 1, 3])
def test_medusa_predicts_with_own_or_shared_rows(own: int) -> None:
    module, rows = shake(MedusaHeads(MedusaSizes(64, 3, 1, 40, own))), torch.randn(40, 64)
    for shape in ((64,), (5, 64), (2, 5, 64)):
        hidden = torch.randn(shape)
        states = module(hidden)
        logits = module.predict(states, rows)
        assert logits.shape == (3, *shape[:-1], 40)
        for head in range(3):
            mine = rows if own == 0 else module.rows[0 if own == 1 else head]
            torch.testing.assert_close(logits[head], states[head] @ mine.T, atol=1e-5, rtol=1e-5)


SCALINGS = [
    None,
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s["rope_type"] if s else "default")
def test_rope_frequencies_are_those_of_transformers(scaling: dict | None) -> None:
    plain = {"rope_type": "default"} | (scaling or {}) | {"rope_theta": 5000.0}
    made = LlamaConfig(hidden_size=128, num_attention_heads=4, head_dim=32, rope_parameters=plain, max_position_embeddings=512)
    torch.testing.assert_close(rope_frequencies(32, 5000.0, scaling), LlamaRotaryEmbedding(made).inv_freq, atol=1e-7, rtol=1e-5)


def test_rope_that_depends_on_the_length_is_refused() -> None:
    with pytest.raises(BadInput, match="yarn"):
        rope_frequencies(32, 5000.0, {"rope_type": "yarn", "factor": 4.0})
