"""The Medusa heads: residual blocks, then the target's own LM head (ours), or an LM matrix that comes with them (the official form)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class MedusaSizes:
    """Shape of the heads; `own_rows` LM matrices come with them: 0 (rows of the target's), 1 for all heads, or one a head."""

    hidden: int
    heads: int
    blocks: int
    draft_vocab: int
    own_rows: int = 0

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

    The large output matrices of the official form are optional: on a small target they would outweigh the target itself, so
    our own heads share the target's frozen LM head.
    """

    def __init__(self, sizes: MedusaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.heads = nn.ModuleList(nn.Sequential(*(ResidualBlock(sizes.hidden) for _ in range(sizes.blocks))) for _ in range(sizes.heads))
        self.rows = nn.Parameter(torch.zeros(sizes.own_rows, sizes.draft_vocab, sizes.hidden)) if sizes.own_rows else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns `[heads, ..., hidden]` for hidden `[..., hidden]`; the LM head rows turn each into logits."""
        return torch.stack([head(hidden) for head in self.heads])

    def predict(self, states: Tensor, rows: Tensor | None = None) -> Tensor:
        """Returns logits `[heads, ..., draft vocab]` of what `forward` gave; `rows` `[draft vocab, hidden]` serve heads that have none."""
        if self.rows is not None:
            return (states.reshape(len(states), -1, states.shape[-1]) @ self.rows.mT).reshape(*states.shape[:-1], -1)
        assert rows is not None, "heads without own rows need the target's"
        return states.to(rows.dtype) @ rows.T
