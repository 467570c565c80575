"""The EAGLE draft layer: fuses a token with a feature and runs ONE decoder layer, for training and for serving alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from specviz.drafters._layer import ROPE_KINDS, DraftLayer, LayerSizes, Projected, causal_bias

__all__ = ["EagleLayer", "EagleSizes", "Projected"]


@dataclass(frozen=True)
class EagleSizes(LayerSizes):
    """Shape of the draft layer; the target's own by default."""

    @classmethod
    def of(cls, config: Any, draft_vocab: int) -> Self:
        """Returns the sizes of a Llama-like target config; a rotary scaling that a draft layer cannot have is left out of it."""
        rope = getattr(config, "rope_parameters", None) or {}
        theta = rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
        scaled = rope.get("rope_type", "default") in ROPE_KINDS[1:]
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            rope_theta=float(theta),
            norm_eps=float(config.rms_norm_eps),
            draft_vocab=draft_vocab,
            rope_scaling={name: value for name, value in rope.items() if name != "rope_theta"} if scaled else None,
        )


class EagleLayer(DraftLayer):
    """EAGLE-1's head (section 4 of the paper): fc over concat(embedding, feature), then a Llama layer without input norm.

    Row i takes the embedding of token i+1 and the feature of token i, has RoPE position i, and predicts the feature of
    token i+1; the target's LM head turns that into the distribution of token i+2.
    """

    sizes: EagleSizes

    def __init__(self, sizes: EagleSizes) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * sizes.hidden, sizes.hidden)  # first: a saved optimizer state knows weights by their order
        self.build(sizes, sizes.hidden)

    def mix(self, embedding: Tensor, feature: Tensor) -> Tensor:
        """Returns the layer's input `[B, T, hidden]`."""
        mixed: Tensor = self.fc(torch.cat((embedding, feature), -1))
        return mixed

    def forward(self, embedding: Tensor, feature: Tensor, unroll: int = 1) -> list[Tensor]:
        """Returns the predicted features of `unroll` steps, each `[B, T, hidden]`, for whole sequences.

        Row i of `embedding` belongs to token i+1. Step s feeds row i the embedding of token i+1+s and its own output of
        step s-1, at position i+s; it sees the true-feature rows up to i and the earlier steps of its own row, exactly as
        in serving (HASS; EAGLE-3's training-time test). The last rows of a step wrap around and mean nothing.
        """
        rows = torch.arange(embedding.shape[1], device=embedding.device)
        causal = causal_bias(rows)
        x = self.mix(embedding, feature)
        first = self.project(x, rows)
        outputs = [self.finish(x, self.attend(first.query, first.key, first.value, causal))]
        steps: list[Projected] = []
        for s in range(1, unroll):
            x = self.mix(embedding.roll(-s, 1), outputs[-1])
            steps.append(self.project(x, rows + s))
            outputs.append(self.finish(x, self.attend(steps[-1].query, first.key, first.value, causal, steps)))
        return outputs
