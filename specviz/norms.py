"""RMS norms in one call: a stock module makes seven small ones, and calling them costs more than what they compute (on 2 CPU cores 3 % of a forward).

The modules are replaced on our own instance of the model; the model's code is untouched. A class of norms may look like these
and mean something else, so every module is compared on numbers before it goes, and named where it has to stay.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

SCALES = (1e-4, 1e-2, 1.0, 1e2)  # of the rows that are compared: epsilon decides the smallest, and nothing of the largest
CLOSE = 1e-5  # in float32, relative to the largest number; coarser formats may round a last bit the other way


class FusedNorm(nn.Module):
    """Computes what the norm it replaces does: normalised in float32, rounded to the dtype of the input, then times the weight."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = norm.weight, norm.variance_epsilon

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        width = self.weight.shape
        if hidden_states.dtype == self.weight.dtype == torch.float32:  # nothing is rounded in between, so the weight can go along
            return nn.functional.rms_norm(hidden_states, width, self.weight, self.variance_epsilon)
        normed = nn.functional.rms_norm(hidden_states.float(), width, None, self.variance_epsilon)
        return self.weight * normed.to(hidden_states.dtype)


def fuse_norms(model: nn.Module) -> str | None:
    """Puts a FusedNorm in the place of every norm of `model` that it equals; returns None, or which ones stay and why."""
    stay: dict[str, list[str]] = {}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not looks_like_one(child):
                continue
            fused = FusedNorm(child)
            if reason := difference(child, fused):
                stay.setdefault(type(child).__name__, []).append(reason)
            else:
                setattr(parent, name, fused)
    return "; ".join(f"{len(reasons)} x {which} ({reasons[0]})" for which, reasons in stay.items()) or None


def looks_like_one(module: Any) -> bool:
    """True for a module with a weight of one dimension, a variance_epsilon, nothing else to multiply or add, and one input."""
    alone = [name for name, _ in module.named_parameters()] == ["weight"] and isinstance(getattr(module, "variance_epsilon", None), float)
    return alone and module.weight.dim() == 1 and len(inspect.signature(module.forward).parameters) == 1 and not isinstance(module, FusedNorm)


def difference(norm: Any, fused: nn.Module) -> str | None:
    """Returns in words how two norms differ on random numbers of several sizes, None where they are equal up to rounding."""
    weight = norm.weight
    rows = torch.randn(len(SCALES), len(weight), generator=torch.Generator().manual_seed(0)) * torch.tensor(SCALES)[:, None]
    rows = rows.to(weight.device, weight.dtype)
    try:
        with torch.inference_mode():
            expected, found = norm(rows), fused(rows)
    except (RuntimeError, TypeError, ValueError) as problem:
        return f"it cannot be compared: {(str(problem) or type(problem).__name__).splitlines()[0][:80]}"
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"it gives {tuple(expected.shape)} {expected.dtype}, torch's rms_norm {tuple(found.shape)} {found.dtype}"
    most = max(CLOSE, 2 * torch.finfo(expected.dtype).eps)
    worst = float((found.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=torch.finfo(torch.float32).tiny))
    return None if worst <= most else f"torch's rms_norm is off by {worst:.1e}, more than {most:.1e}"
