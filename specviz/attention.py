"""Attention for trees on models with grouped keys: the query heads of a group become rows of one product, and keys are never repeated.

Registered with transformers under one name and chosen by configuration; no layer of the model is written again.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "specviz_tree"


def tree_attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Any) -> Any:
    """Computes what transformers' sdpa computes, [batch, nodes, heads, head_dim]; with a 4D mask and grouped keys without repeating them.

    query [batch, heads, nodes, d], key and value [batch, kv_heads, view, d], mask additive [batch, 1, nodes, view].
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    groups = query.shape[1] // key.shape[1]
    special = kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None or kwargs.get("dropout", 0.0)
    if attention_mask is None or groups == 1 or special:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    batch, heads, nodes, width = query.shape
    folded = query.reshape(batch, key.shape[1], groups * nodes, width)
    mask = attention_mask[..., : key.shape[2]].repeat(1, 1, groups, 1)
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
