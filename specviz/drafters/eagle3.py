from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
from specviz.drafters._layer import normed
from specviz.drafters._memory import LayerDrafter
from specviz.errors import BadFile

if TYPE_CHECKING:
    from specviz.target import Target


class Eagle3(LayerDrafter):
    """One small layer over states of several depths of the target, trained on its own drafts (EAGLE-3)."""

    method: ClassVar[str] = "eagle3"
    module: Eagle3Layer

    def build(self, sizes: Mapping[str, Any]) -> Eagle3Layer:
        return Eagle3Layer(Eagle3Sizes.from_json(sizes))

    def reads(self, sizes: Mapping[str, Any], target: Target) -> tuple[int, ...]:
        taps = tuple(sizes.get("taps") or ())
        if not taps or not all(0 <= tap <= target.layers for tap in taps):
            raise BadFile(
                f"The eagle3 head reads the states of layers {list(taps)}; {target.name} has layers 0 to {target.layers}. Set `taps` in its config.json."
            )
        return taps

    def embed(self, tokens: Tensor) -> Tensor:
        if self.module.embed_tokens is not None:
            embedding: Tensor = self.module.embed_tokens(tokens)
            return embedding
        return super().embed(tokens)

    def log_q(self, output: Tensor) -> Tensor:
        if self.module.lm_head is None:
            return self.rows.log_q(normed(self.module.norm, output))
        return self.module.predict(output).float().log_softmax(-1)
