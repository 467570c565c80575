"""Heads of ours for tests: random weights everywhere, over a reduced vocabulary."""

from __future__ import annotations

from pathlib import Path

import torch
from checkpoints import makers

from specviz.drafters._eagle3_module import Eagle3Sizes
from specviz.drafters._hydra_module import HydraSizes
from specviz.drafters._layer import LayerSizes
from specviz.drafters.eagle_module import EagleSizes
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.drafters.head_sizes import METHODS
from specviz.drafters.medusa_module import MedusaSizes
from specviz.sources import Fingerprint

H, V = makers.H, makers.V
LAYER = {"hidden": H, "intermediate": 96, "heads": 4, "kv_heads": 2, "head_dim": 16, "rope_theta": 10000.0, "norm_eps": 1e-5, "draft_vocab": makers.DRAFT}
PREFIX = LayerSizes(**(LAYER | {"draft_vocab": V}))
SIZES = {
    "medusa": MedusaSizes(H, 3, 1, makers.DRAFT),
    "hydra": HydraSizes(H, 2, 2, makers.DRAFT),
    "hydra-prefix": HydraSizes(H, 2, 2, makers.DRAFT, prefix=PREFIX),
    "eagle": EagleSizes(**LAYER),
    "eagle3": Eagle3Sizes(**LAYER, feature=H, taps=(0, 1, 2), vocab=V),
    "eagle3-shared-rows": Eagle3Sizes(**LAYER, feature=H, taps=(0, 1, 2), own_rows=False),
}


def own_head(folder: Path, kind: str, fingerprint: Fingerprint) -> Path:
    """A head of ours with random weights everywhere, over a reduced vocabulary."""
    method, sizes = kind.partition("-")[0], SIZES[kind]
    torch.manual_seed(3)
    module = METHODS[method][1](sizes)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(("norm" in name) + torch.randn(weight.shape) * 0.2)
    save_head(folder, HeadConfig(method, sizes.to_json(), fingerprint, {"epochs": 3, "held_out_acceptance": [0.6, 0.5, 0.1]}), module, makers.draft_ids())
    return folder
