"""Our names of a draft layer's weights and those of a transformers Llama layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files

ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
BIASED = ("q_proj", "k_proj", "v_proj")


def foreign(name: str) -> str:
    """Returns the transformers name, below its layer, of one of our weights."""
    part, _, _ = name.partition(".")
    return f"self_attn.{name}" if part in ATTENTION else f"mlp.{name}" if part in MLP else name


def layer_names(norms: tuple[str, ...], biased: bool) -> dict[str, str]:
    """Returns {our name: transformers name} of a layer's weights."""
    mine = [f"{part}.weight" for part in (*ATTENTION, *MLP, *norms)] + [f"{part}.bias" for part in BIASED if biased]
    return {name: foreign(name) for name in mine}


def layer_shapes(sizes: Mapping[str, Any], width: int, norms: tuple[str, ...], biased: bool) -> dict[str, tuple[int, ...]]:
    """Returns {transformers name: shape} for a layer whose attention reads `width` numbers a row."""
    d, inner = sizes["hidden"], sizes["intermediate"]
    wide, narrow = sizes["heads"] * sizes["head_dim"], sizes["kv_heads"] * sizes["head_dim"]
    mine: dict[str, tuple[int, ...]] = {
        "q_proj.weight": (wide, width), "k_proj.weight": (narrow, width), "v_proj.weight": (narrow, width), "o_proj.weight": (d, wide),
        "gate_proj.weight": (inner, d), "up_proj.weight": (inner, d), "down_proj.weight": (d, inner),
    }  # fmt: skip
    mine |= {f"{norm}.weight": (d,) for norm in norms}
    if biased:
        mine |= {"q_proj.bias": (wide,), "k_proj.bias": (narrow,), "v_proj.bias": (narrow,)}
    return {foreign(name): shape for name, shape in mine.items()}


def read_layer(files: Files, prefix: str, norms: tuple[str, ...], biased: bool) -> dict[str, Tensor]:
    """Returns a layer's weights under our names."""
    return {mine: files.tensor(prefix + theirs) for mine, theirs in layer_names(norms, biased).items()}


def has_biases(files: Files, prefix: str) -> bool:
    return any(f"{prefix}self_attn.{part}.bias" in files for part in BIASED)
