from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specviz.drafters._memory import LayerDrafter
from specviz.drafters.eagle_module import EagleLayer, EagleSizes


class Eagle(LayerDrafter):
    """Predicts the target's next hidden state with one small layer, token by token down the tree (EAGLE)."""

    method: ClassVar[str] = "eagle"

    def build(self, sizes: Mapping[str, Any]) -> EagleLayer:
        return EagleLayer(EagleSizes.from_json(sizes))
