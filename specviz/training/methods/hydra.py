"""Hydra's loss: as Medusa's, but head k is given the k true tokens between the state and the one it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from specviz.drafters._hydra_module import GroundedBlock, HydraHeads, HydraSizes
from specviz.drafters._layer import LayerSizes
from specviz.drafters.eagle_module import EagleSizes
from specviz.training.dataset import Batch
from specviz.training.methods.base import Frozen, Hits, count_hits, faded, top_tokens, word_losses


class HydraLesson:
    """Trains all heads at once on the frozen target's states; `prefix` puts one attention layer before them (Hydra++)."""

    method = "hydra"

    def __init__(self, frozen: Frozen, *, heads: int = 4, blocks: int = 1, decay: float = 0.8, prefix: bool = False) -> None:
        self.frozen, self.decay = frozen, decay
        self.taps = (frozen.config.num_hidden_layers,)
        layer = LayerSizes(**EagleSizes.of(frozen.config, len(frozen.vocabulary)).to_json()) if prefix else None
        self.module = HydraHeads(HydraSizes(frozen.config.hidden_size, heads, blocks, len(frozen.vocabulary), prefix=layer))
        for head in self.module.heads:
            _start(cast(GroundedBlock, cast(Any, head)[0]), frozen)

    def sizes(self) -> dict[str, Any]:
        return self.module.sizes.to_json()

    def loss(self, batch: Batch, chance: torch.Generator) -> Mapping[str, Tensor]:
        losses = word_losses(self._outputs(batch), batch, self.frozen)
        parts = {f"head{k}": loss for k, loss in enumerate(losses, 1)}
        return {"loss": self.decay * faded(losses, self.decay), **parts, "outside": batch.ahead(2).outside()}

    def hits(self, batch: Batch) -> Hits:
        """Feeding the true tokens counts the same chain as feeding drafted ones: a depth counts only where all before it were right."""
        return count_hits([top_tokens(output, self.frozen) for output in self._outputs(batch)], batch)

    def _outputs(self, batch: Batch) -> list[Tensor]:
        embedding = functional.embedding(batch.ids.roll(-1, 1), self.frozen.embedding)
        outputs: list[Tensor] = self.module(embedding, batch.states[self.taps[0]])
        return outputs


def lesson(frozen: Frozen, **knobs: Any) -> HydraLesson:
    """Returns the Hydra lesson."""
    return HydraLesson(frozen, **knobs)


def _start(block: GroundedBlock, frozen: Frozen) -> None:
    """Lets an untrained head repeat the LM head, and scales the embeddings' columns up: they are far smaller numbers than states."""
    width = block.skip.out_features
    lift = min(1.0 / max(float(frozen.embedding.std()), 1e-3), 20.0)
    with torch.no_grad():
        block.skip.weight[:, :width] = torch.eye(width)
        block.skip.weight[:, width:] *= 0.1 * lift
        block.skip.bias.zero_()
        block.linear.bias.zero_()
