"""The Hydra heads: head k reads the target's state AND the embeddings of the tokens drafted before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specviz.drafters._layer import DraftLayer, LayerSizes, causal_bias, normed
from specviz.drafters.medusa_module import ResidualBlock


@dataclass(frozen=True)
class HydraSizes:
    """Shape of the heads.

    blocks        residual blocks a head, the first (which takes the embeddings in) included
    grounded      heads read the drafted tokens; False: independent heads, as Medusa's
    state_offset  which state of the target is read: 0 the final norm's output, n the one entering layer L - n
    own_rows      every head has an LM matrix and bias of its own; False: rows of the target's
    prefix        shape of the prefix-attention layer that the state goes through first (Hydra++), if any
    """

    hidden: int
    heads: int
    blocks: int
    draft_vocab: int
    grounded: bool = True
    state_offset: int = 0
    own_rows: bool = False
    prefix: LayerSizes | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> HydraSizes:
        prefix = raw.get("prefix")
        return cls(**{**raw, "prefix": None if prefix is None else LayerSizes.from_json(prefix)})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class GroundedBlock(nn.Module):
    """x -> skip(x) + SiLU(W x + b): brings the state and the embeddings back to the state's width."""

    def __init__(self, wide: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(wide, hidden)
        self.skip = nn.Linear(wide, hidden)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.skip(x) + functional.silu(self.linear(x))
        return output


class PrefixLayer(DraftLayer):
    """One Llama layer with its norms over the target's states, so that a head sees more than one of them (Hydra++, Ankner et al. 2024)."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.build(sizes, sizes.hidden)
        self.input_layernorm = nn.RMSNorm(sizes.hidden, eps=sizes.norm_eps)
        self.norm = nn.RMSNorm(sizes.hidden, eps=sizes.norm_eps)

    def read(self, embedding: Tensor, x: Tensor) -> Tensor:
        """Returns what attention reads, `[B, T, hidden]`."""
        return normed(self.input_layernorm, x)

    def finish(self, residual: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's normed output."""
        return normed(self.norm, super().finish(residual, attended))

    def forward(self, hidden: Tensor) -> Tensor:
        """Returns `[B, T, hidden]` for whole sequences, causally."""
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        p = self.project(self.read(hidden, hidden), positions)
        return self.finish(hidden, self.attend(p.query, p.key, p.value, causal_bias(positions)))


class HydraHeads(nn.Module):
    """Hydra (Ankner et al. 2024): head k (k = 1..) reads the state at t and tokens t+1 .. t+k, and says token t+k+1."""

    def __init__(self, sizes: HydraSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.prefix = PrefixLayer(sizes.prefix) if sizes.prefix is not None else None
        self.heads = nn.ModuleList(nn.Sequential(*_blocks(sizes, head)) for head in range(sizes.heads))
        self.rows = nn.ModuleList(nn.Linear(sizes.hidden, sizes.draft_vocab) for _ in range(sizes.heads)) if sizes.own_rows else None

    def step(self, head: int, state: Tensor, embeddings: Sequence[Tensor]) -> Tensor:
        """Returns the output `[.., hidden]` of head number `head` (from 0) after the drafted tokens with these embeddings, in order.

        `state` is the target's state, or the prefix layer's output for it where there is such a layer.
        """
        x = torch.cat((state, *embeddings[: head + 1]), -1) if self.sizes.grounded else state
        output: Tensor = self.heads[head](x)
        return output

    def predict(self, head: int, output: Tensor, rows: Tensor | None = None) -> Tensor:
        """Returns logits `[.., draft vocab]`; `rows` `[draft vocab, hidden]` is needed when the heads have none of their own."""
        if self.rows is not None:
            logits: Tensor = self.rows[head](output)
            return logits
        assert rows is not None, "heads without own rows need the target's"
        return output.to(rows.dtype) @ rows.T

    def forward(self, embedding: Tensor, hidden: Tensor) -> list[Tensor]:
        """Returns every head's output, each `[B, T, hidden]`, for whole sequences; row i of `embedding` belongs to token i+1.

        The last rows of a head wrap around and mean nothing.
        """
        state = hidden if self.prefix is None else self.prefix(hidden)
        embeddings = [embedding.roll(-k, 1) for k in range(self.sizes.heads)]
        return [self.step(head, state, embeddings) for head in range(self.sizes.heads)]


def _blocks(sizes: HydraSizes, head: int) -> list[nn.Module]:
    first = GroundedBlock((head + 2) * sizes.hidden, sizes.hidden) if sizes.grounded else ResidualBlock(sizes.hidden)
    return [first, *(ResidualBlock(sizes.hidden) for _ in range(sizes.blocks - 1))]
