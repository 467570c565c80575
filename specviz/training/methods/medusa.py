"""Medusa-1's loss: the sum over heads of 0.8^k times the cross-entropy to the target's own distribution k + 1 tokens ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.training.dataset import Batch
from specviz.training.methods.base import Frozen, Hits, count_hits, faded, top_tokens, word_losses


class MedusaLesson:
    """Trains all heads at once on the frozen target's states."""

    method = "medusa"

    def __init__(self, frozen: Frozen, *, heads: int = 4, blocks: int = 1, decay: float = 0.8) -> None:
        self.frozen, self.decay = frozen, decay
        self.taps = (frozen.config.num_hidden_layers,)
        self.module = MedusaHeads(MedusaSizes(frozen.config.hidden_size, heads, blocks, len(frozen.vocabulary)))

    def sizes(self) -> dict[str, Any]:
        return self.module.sizes.to_json()

    def loss(self, batch: Batch, chance: torch.Generator) -> Mapping[str, Tensor]:
        losses = word_losses(list(self.module(batch.states[self.taps[0]])), batch, self.frozen)
        parts = {f"head{k}": loss for k, loss in enumerate(losses, 1)}
        return {"loss": self.decay * faded(losses, self.decay), **parts, "outside": batch.ahead(2).outside()}

    def hits(self, batch: Batch) -> Hits:
        states = self.module(batch.states[self.taps[0]])
        return count_hits([top_tokens(state, self.frozen) for state in states], batch)


def lesson(frozen: Frozen, **knobs: Any) -> MedusaLesson:
    """Returns the Medusa lesson."""
    return MedusaLesson(frozen, **knobs)
