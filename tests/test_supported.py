from __future__ import annotations

from typing import Any

import pytest
import transformers as t

from specviz.errors import UnsupportedModel
from specviz.supported import refuse_unsupported
from specviz.target import Target

SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

REFUSED = [
    ("mistral", t.MistralConfig(**SMALL, sliding_window=16), "sliding window of 16"),
    ("qwen2", t.Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=16, max_window_layers=0), "sliding_attention"),
    ("gemma2", t.Gemma2Config(**SMALL), "sliding_attention"),
    ("mamba", t.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), "recurrent"),
    ("mamba2", t.Mamba2Config(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8), "recurrent"),
    ("rwkv", t.RwkvConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), "recurrent"),
    ("bloom", t.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), "no rotary"),
    ("mpt", t.MptConfig(vocab_size=64, d_model=32, n_layers=2, n_heads=2), "no rotary"),
    ("falcon", t.FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, alibi=True), "ALiBi"),
    ("t5", t.T5Config(vocab_size=64, d_model=32, num_layers=2), "encoder-decoder"),
    ("dynamic rope", t.LlamaConfig(**SMALL, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}), "'dynamic' rotary"),
    ("jamba", t.JambaConfig(**SMALL), "mamba"),
    ("bamba", t.BambaConfig(**SMALL), "mamba"),
    ("falcon_h1", t.FalconH1Config(**SMALL), "state|hybrid|cache"),
    ("zamba2", t.Zamba2Config(**SMALL), "hybrid|mamba"),
    ("recurrent_gemma", t.RecurrentGemmaConfig(**SMALL), "recurrent"),
    ("lfm2", t.Lfm2Config(**SMALL), "conv"),
    ("qwen3_next", t.Qwen3NextConfig(**SMALL), "linear_attention"),
    ("llama4", t.Llama4TextConfig(**SMALL), "chunked_attention"),
    ("gemma3n", t.Gemma3nTextConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2), "sliding|share"),
]


@pytest.mark.parametrize(("name", "config", "expected"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_models_that_would_be_silently_wrong_are_refused_by_name(name, config, expected):
    with pytest.raises(UnsupportedModel, match=expected) as problem:
        refuse_unsupported(config)
    assert repr(config.model_type) in str(problem.value)
