"""The Medusa heads in their shared-LM-head form: a residual block each, then the target's own LM head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class MedusaSizes:
    """Shape of the heads."""

    hidden: int
    heads: int
    blocks: int
    draft_vocab: int

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> MedusaSizes:
        return cls(**raw)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class ResidualBlock(nn.Module):
    """h -> h + SiLU(W h + b), with W and b zero at the start, so that an untrained head repeats the LM head."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, h: Tensor) -> Tensor:
        return h + functional.silu(self.linear(h))


class MedusaHeads(nn.Module):
    """Medusa section 2.1: head k (k = 1..) reads the final-norm state at t and says token t + k + 1.

    The large output matrix of the official form is left out: on a small target it would outweigh the target itself, so
    all heads share the target's frozen LM head.
    """

    def __init__(self, sizes: MedusaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.heads = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(sizes.hidden) for _ in range(sizes.blocks))) for _ in range(sizes.heads)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns `[heads, ..., hidden]` for hidden `[..., hidden]`; the LM head rows turn each into logits."""
        return torch.stack([head(hidden) for head in self.heads])
