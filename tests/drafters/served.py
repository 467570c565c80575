"""What tests of learned drafters share: the states of a target, and a growth that already holds given paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from specviz.shapes.base import Growth


def states_of(target: Any, ids: Sequence[int], taps: Sequence[int]) -> dict[int, torch.Tensor]:
    """Returns {tap: [rows, H]} of a plain cacheless forward."""
    with torch.inference_mode():
        decoder = target.model.get_decoder()
        out = decoder(input_ids=torch.tensor([list(ids)]), use_cache=False, output_hidden_states=True)
    return {tap: out.hidden_states[tap][0].clone() for tap in taps}


def growth_of(root: int, paths: Sequence[tuple[int, ...]]) -> tuple[Growth, dict[tuple[int, ...], int]]:
    """Returns a growth that already holds the token paths below its root, and {path: node}; nodes in breadth-first order."""
    growth = Growth(root, lambda g, n: torch.zeros(0), depth_limit=99)
    places: dict[tuple[int, ...], int] = {(): 0}
    for depth in range(1, max(map(len, paths)) + 1):
        for path in paths:
            if len(path) >= depth and path[:depth] not in places:
                places[path[:depth]] = growth._add(places[path[: depth - 1]], path[depth - 1], -1.0)
    return growth, places
