"""Linear layers with weights repacked once for oneDNN: on a CPU, verifying 16 nodes then costs little more than verifying one.

The default CPU backend multiplies 2 to 64 rows poorly. The layers are replaced on our own instance of the model; the model's
code is untouched. The operators are private to torch, so they are tried on every load and named when they cannot be used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

ROWS_HINT = 16  # oneDNN picks its layout for this many rows; measured equal from 16 to 512, worse below


class PackedLinear(nn.Module):
    """Computes the same x W^T + b as the nn.Linear it replaces, for any number of rows; fp32 in and out, multiplied in `dtype`."""

    def __init__(self, linear: nn.Linear, keep_weight: bool, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self.weight = linear.weight if keep_weight else None  # the LM head's rows are read by drafters
        self._packed = pack(linear.weight.detach().to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return multiply(x, self._packed, self.bias)


def pack(weight: torch.Tensor) -> torch.Tensor:
    """Returns a CPU weight [out, in] in oneDNN's layout, to be used by `multiply` only."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_HINT)


def multiply(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Returns x W^T + b for x [..., in] and a weight from `pack`, in the dtype of x."""
    if packed.dtype == x.dtype:
        return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return torch.ops.mkldnn._linear_pointwise(x.to(packed.dtype), packed, bias, "none", [], "").to(x.dtype)


def packable(model: Any) -> str | None:
    """Returns None when this model's layers can be packed here, else the reason in words."""
    parameter = next(model.parameters())
    if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        return f"packed layers are for fp32 on a CPU, this is {parameter.dtype} on {parameter.device.type}"
    if not torch.backends.mkldnn.is_available():
        return "this torch build has no oneDNN"
    try:
        weight, x = torch.randn(32, 16), torch.randn(3, 16)
        worst = float((multiply(x, pack(weight)) - x @ weight.T).abs().max())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError) as problem:
        return f"torch {torch.__version__} does not offer oneDNN's packed linear ({str(problem).splitlines()[0][:80]})"
    return None if worst < 1e-4 else f"oneDNN's packed linear is off by {worst:.1e}"


def fast_bfloat16() -> bool:
    """Says whether this processor multiplies bfloat16 itself; where it does not, half the bytes cost more time, not less."""
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(known is not None and known())


def pack_linears(model: Any) -> str | None:
    """Replaces every nn.Linear of `model` by a PackedLinear; returns None, or the reason why the stock layers stay."""
    reason = packable(model)
    if reason is not None:
        return reason
    replace_linears(model, keep=model.get_output_embeddings())
    return None


def replace_linears(module: nn.Module, dtype: torch.dtype = torch.float32, keep: nn.Module | None = None) -> None:
    """Puts a PackedLinear that multiplies in `dtype` in the place of every nn.Linear of `module`, which must be packable; `keep` keeps its weight too."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, keep_weight=child is keep, dtype=dtype))
