from __future__ import annotations

import pytest
from transformers import AutoConfig

from specviz.errors import UnsupportedModel
from specviz.supported import refuse_odd_cache, refuse_unsupported
from specviz.target import Target

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
REFUSED = [
    ("mistral", {"sliding_window": 16}, "sliding window of 16"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}, "sliding_attention"),
    ("gemma2", {}, "sliding_attention"),
    ("gpt_oss", {}, "sliding_attention"),
    ("gpt_neo", {}, "local"),
    ("llama4_text", {}, "chunked_attention"),
    ("qwen3_next", {}, "linear_attention"),
    ("jamba", {}, "linear_attention"),
    ("falcon_h1", {}, "hybrid"),
    ("recurrent_gemma", {}, "linear_attention"),
    ("mamba", {}, "linear_attention"),
    ("rwkv", {}, "recurrent state"),
    ("xlstm", {}, "recurrent state"),
    ("bloom", {}, "position biases"),
    ("mpt", {}, "position biases"),
    ("falcon", {"alibi": True}, "ALiBi"),
    ("t5", {}, "encoder-decoder"),
    ("whisper", {}, "encoder-decoder"),
    ("llama", {"rope_parameters": DYNAMIC}, "'dynamic' rotary"),
    ("llama", {"rope_parameters": {"full_attention": DYNAMIC}}, "'dynamic' rotary"),
    ("llama", {"rope_parameters": None, "rope_scaling": DYNAMIC}, "'dynamic' rotary"),
]
ACCEPTED = [
    ("llama", {}), ("qwen3", {}), ("qwen2", {}), ("mistral", {"sliding_window": None}), ("gemma", {}), ("gpt2", {}), ("gpt_neox", {}), ("olmo2", {}), ("smollm3", {}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}),
]  # fmt: skip


def config_of(kind: str, changes: dict) -> object:
    config = AutoConfig.for_model(kind)
    for name, value in changes.items():  # set afterwards: some checkpoints carry what today's constructors would rewrite
        setattr(config, name, value)
    if kind == "qwen2" and changes:
        config = AutoConfig.for_model(kind, **changes)
    return config


@pytest.mark.parametrize(("kind", "changes", "expected"), REFUSED, ids=[f"{kind}-{i}" for i, (kind, *_) in enumerate(REFUSED)])
def test_models_that_would_be_silently_wrong_are_refused_by_name(kind, changes, expected):
    config = config_of(kind, changes)
    with pytest.raises(UnsupportedModel, match=expected) as problem:
        refuse_unsupported(config)
    assert repr(config.model_type) in str(problem.value)
    assert "Expected a decoder-only model" in str(problem.value)


@pytest.mark.parametrize(("kind", "changes"), ACCEPTED, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(ACCEPTED)])
def test_full_attention_models_are_accepted(kind, changes):
    config = config_of(kind, changes)
    refuse_unsupported(config)
    refuse_odd_cache(config)


def test_shared_keys_are_refused():
    config = AutoConfig.for_model("llama")
    config.num_kv_shared_layers = 2
    with pytest.raises(UnsupportedModel, match="share keys"):
        refuse_unsupported(config)


def test_what_transformers_gives_another_cache_is_refused():
    with pytest.raises(UnsupportedModel, match="cache layers of type"):
        refuse_odd_cache(AutoConfig.for_model("gemma2"))


def test_the_refusal_comes_before_any_weight_is_read(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mistral", "sliding_window": 64}')
    with pytest.raises(UnsupportedModel, match="sliding window of 64"):
        Target.load(str(tmp_path))


def test_a_model_that_cannot_verify_a_tree_is_refused_when_it_is_loaded(tmp_path, tiny_folder):
    """Keys and values of different widths pass every look at the configuration; the check with a small tree finds them."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    sizes = {
        "vocab_size": 320,
        "hidden_size": 32,
        "intermediate_size": 32,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    heads = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 4, "first_k_dense_replace": 1}
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**sizes, **heads, bos_token_id=1, eos_token_id=2))
    model.save_pretrained(tmp_path)
    for file in tiny_folder.glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UnsupportedModel, match="could not verify a small tree"):
        Target.load(str(tmp_path))
