"""Attention for trees on models with grouped keys: the query heads of a group become rows of one product, and keys are never repeated.

Registered with transformers under one name and chosen by configuration; no layer of the model is written again.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "specviz_tree"


def tree_attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Any) -> Any:
    """Computes what transformers' sdpa computes, [batch, nodes, heads, head_dim]; with a 4D mask and grouped keys without repeating them.

    query [batch, heads, nodes, d], key and value [batch, kv_heads, view, d], mask additive [batch, 1, nodes, view], or with the
    rows of a group's heads below each other already, [batch, 1, groups * nodes, view]: repeated once for all layers.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    groups = query.shape[1] // key.shape[1]
    special = kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None or kwargs.get("dropout", 0.0)
    batch, heads, nodes, width = query.shape
    if attention_mask is None or groups == 1 or special:
        plain = None if attention_mask is None else attention_mask[:, :, :nodes]
        return sdpa_attention_forward(module, query, key, value, plain, **kwargs)
    folded = query.reshape(batch, key.shape[1], groups * nodes, width)
    mask = attention_mask[..., : key.shape[2]]
    if mask.shape[2] != groups * nodes:
        mask = mask[:, :, :nodes].repeat(1, 1, groups, 1)
    out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=kwargs.get("scaling"))
    return out.reshape(batch, heads, nodes, width).transpose(1, 2).contiguous(), None


def use_tree_attention(model: Any) -> None:
    """Lets `model` attend by `tree_attention` where it used sdpa; other implementations stay as they are."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, tree_attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)


def fold_of(model: Any) -> int:
    """Returns how many times `tree_attention` wants a mask repeated for this model: the query heads of a group, 1 where it is not in use."""
    text = model.config.get_text_config(decoder=True)
    kv_heads = getattr(text, "num_key_value_heads", None)
    return int(text.num_attention_heads) // int(kv_heads) if kv_heads and model.config._attn_implementation == NAME else 1
