"""Soft cross-entropy through the target's frozen LM head, without ever keeping a full logits tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SMALLEST = 1e-30  # an fp32 softmax can underflow to 0, whose log is no loss


def rows_at_once(device: torch.device) -> int:
    """Returns how many rows of logits are computed together: 256 x 8192 in fp32 stay in a CPU's cache; on CUDA every chunk costs launches."""
    return 8192 if device.type == "cuda" else 256


class _SoftCrossEntropy(torch.autograd.Function):
    """The gradient is (q - p) @ rows, so it is finished in the forward pass while the logits are still in the cache."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor, values: Tensor, indices: Tensor) -> Tensor:
        gradient = torch.empty_like(hidden, dtype=torch.float32)
        losses = torch.empty(hidden.shape[0], device=hidden.device)
        chunk = rows_at_once(hidden.device)
        for start in range(0, hidden.shape[0], chunk):
            part = slice(start, start + chunk)
            q = (hidden[part].to(rows.dtype) @ rows.T).softmax(-1, dtype=torch.float32)
            log_q = q.gather(1, indices[part]).clamp_(min=SMALLEST).log_()
            losses[part] = -(values[part] * log_q).sum(-1)
            difference = q.scatter_add_(1, indices[part], -values[part])
            gradient[part] = (difference.to(rows.dtype) @ rows).float()
        ctx.save_for_backward(gradient)
        ctx.dtype = hidden.dtype
        return losses

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * upstream[:, None]).to(ctx.dtype), None, None, None


def soft_cross_entropy(hidden: Tensor, rows: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """Returns -sum_k p_k log q_k per row `[n]`, for hidden `[n, d]`, frozen rows `[draft vocab, d]`, p given by its top K.

    `values` `[n, K]` must sum to 1 (then the gradient of the logits is exactly q - p); the product runs in the dtype of
    `rows`, softmax and loss in fp32.
    """
    if not hidden.shape[0]:
        return hidden.sum(-1).float()
    losses: Tensor = _SoftCrossEntropy.apply(hidden, rows, values, indices)
    return losses
