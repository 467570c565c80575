"""Which models tree verification is right for: full attention in every layer, rotary positions, one plain cache."""

from __future__ import annotations

from typing import Any

from specviz.errors import UnsupportedModel

_LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")
_NO_ROTARY = ("bloom", "mpt", "rwkv", "xlstm", "mamba", "mamba2")


def refuse_unsupported(config: Any) -> None:
    """Raises UnsupportedModel, naming the reason, for a model whose tree logits would be silently wrong.

    Source: a 4D mask overrides sliding windows without a word, and recurrent state cannot hold a tree.
    """
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    reason = _reason(config, text)
    if reason:
        kind = getattr(text, "model_type", type(text).__name__)
        raise UnsupportedModel(
            f"{kind!r} models cannot be verified as a tree: {reason}. "
            "Expected a decoder-only model with full attention in every layer and rotary positions, such as Llama or Qwen3."
        )


def _reason(config: Any, text: Any) -> str | None:
    layer_types = getattr(text, "layer_types", None)
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder"
    if layer_types:
        odd = sorted(set(layer_types) - {"full_attention"})
        if odd:
            return f"it has layers of type {', '.join(odd)}"
    elif getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
        return f"it attends through a sliding window of {text.sliding_window} tokens"
    elif getattr(text, "attention_chunk_size", None):
        return f"it attends in chunks of {text.attention_chunk_size} tokens"
    if "local" in (getattr(text, "attention_layers", None) or ()):
        return "it has layers of local attention"
    if getattr(text, "num_kv_shared_layers", 0):
        return "some layers share keys and values"
    if getattr(text, "alibi", False):
        return "it uses ALiBi position biases"
    return _position_reason(text)


def _position_reason(text: Any) -> str | None:
    kind = getattr(text, "model_type", "")
    if kind in _NO_ROTARY:
        return "it has no rotary positions (recurrent state or position biases)"
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    for one in (rope, *rope.values()):  # some models keep one record per layer type
        name = one.get("rope_type", one.get("type")) if isinstance(one, dict) else None
        if name in _LENGTH_DEPENDENT_ROPE:
            return f"its {name!r} rotary positions change with the length of the text"
    return None


def refuse_odd_cache(config: Any) -> None:
    """Raises UnsupportedModel when transformers itself would give this model anything but plain growing key/value layers."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    odd = sorted({type(layer).__name__ for layer in DynamicCache(config=config).layers} - {DynamicLayer.__name__})
    if odd:
        raise UnsupportedModel(f"This model needs cache layers of type {', '.join(odd)}; a tree can only be verified with plain key/value layers.")
