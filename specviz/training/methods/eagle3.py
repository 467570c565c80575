"""EAGLE-3's loss: fused states of several depths, no feature loss, the layer's own outputs fed back while training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
from specviz.drafters._layer import normed
from specviz.drafters.eagle_module import EagleSizes
from specviz.training.dataset import Batch
from specviz.training.methods.base import Frozen, Hits, count_hits, faded, top_tokens, word_losses

DEPTHS = 5  # measured on held-out text


class Eagle3Lesson:
    """Trains the draft layer with `unroll` steps of its own output (training-time test, section 3.2).

    `residual` adds the embedding to the residual stream; without it the wiring is the official one. `final` reads the final
    norm's output in place of the lowest tap.
    """

    method = "eagle3"

    def __init__(self, frozen: Frozen, *, unroll: int = 3, decay: float = 0.8, residual: bool = True, final: bool = True) -> None:
        self.frozen, self.unroll, self.decay = frozen, unroll, decay
        config, like = frozen.config, EagleSizes.of(frozen.config, len(frozen.vocabulary)).to_json()
        layers = config.num_hidden_layers
        official = sorted({2, layers // 2, layers - 3} & set(range(layers)))
        self.taps = (*official[1:], layers) if final and len(official) > 1 else tuple(official)
        sizes = Eagle3Sizes(
            **like,
            feature=config.hidden_size,
            tap_count=len(self.taps),
            taps=self.taps,
            fc_norm=True,  # the states of a deep residual stream differ a hundredfold in size
            own_rows=False,
            residual_embedding=residual,
        )
        self.module = Eagle3Layer(sizes)
        self._start()

    def sizes(self) -> dict[str, Any]:
        return self.module.sizes.to_json()

    def _start(self) -> None:
        """Starts in the target's own space: the state begins as the last tap, and the LM-head rows give flat predictions.

        Measured at step 60 of a fit: loss 5.35 so, 5.77 without the identity, 7.04 with the final norm's weight unscaled.
        """
        with torch.no_grad():
            self.module.norm.weight.copy_(self.frozen.norm * 0.25)
            self.module.fc.weight[:, -self.module.sizes.hidden :] += torch.eye(self.module.sizes.hidden)

    def loss(self, batch: Batch, chance: torch.Generator) -> Mapping[str, Tensor]:
        losses = word_losses(self._outputs(batch, self.unroll), batch, self.frozen)
        parts = {f"step{s}": loss for s, loss in enumerate(losses, 1)}
        scale = sum(self.decay**s for s in range(self.unroll))
        return {"loss": faded(losses, self.decay) / scale, **parts, "outside": batch.ahead(2).outside()}

    def hits(self, batch: Batch) -> Hits:
        return count_hits([top_tokens(output, self.frozen) for output in self._outputs(batch, DEPTHS)], batch)

    def _outputs(self, batch: Batch, unroll: int) -> list[Tensor]:
        """Returns the normed outputs of every step, as the LM-head rows read them."""
        embedding = functional.embedding(batch.ids.roll(-1, 1), self.frozen.embedding)
        states = torch.cat([batch.states[tap] for tap in self.taps], -1)
        return [normed(self.module.norm, output) for output in self.module(embedding, states, unroll)]


def lesson(frozen: Frozen, **knobs: Any) -> Eagle3Lesson:
    """Returns the EAGLE-3 lesson."""
    return Eagle3Lesson(frozen, **knobs)
