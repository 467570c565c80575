"""Positions and mask of candidate trees, made on the device from parents: contents change, shapes do not, and nothing is read back."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Layout:
    """Where the nodes of one forward lie: positions and slots [rows, nodes], additive mask [rows, 1, fold * nodes, view]."""

    positions: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor


def ancestors(parents: torch.Tensor) -> torch.Tensor:
    """Returns [rows, nodes, nodes], True where node j is node i or above it; `parents` [rows, nodes] is -1 for roots and padding.

    Squaring doubles how far up a node sees, so log2(nodes) small products suffice for a tree of any depth.
    """
    nodes = parents.shape[1]
    places = torch.arange(nodes, device=parents.device)
    sees = ((parents[:, :, None] == places) | (places[:, None] == places)).float()
    for _ in range((nodes - 1).bit_length()):
        sees = (sees @ sees).clamp_(max=1.0)  # without the limit the numbers of ways up would overflow at 256 nodes
    return sees > 0.0


def layout(parents: torch.Tensor, lengths: torch.Tensor, view: int, dtype: torch.dtype, fold: int = 1) -> Layout:
    """Returns the layout of trees behind `lengths` [rows] committed tokens, for attention to the first `view` slots.

    A node sees the committed prefix, its ancestors and itself; so does a node of padding (parent -1), which nobody sees.
    Masked entries hold the dtype's minimum, never -inf. `fold` > 1 repeats the mask for that many query heads of a group.
    """
    nodes = parents.shape[1]
    sees = ancestors(parents)
    offsets = torch.arange(view, device=parents.device) - lengths[:, None]  # [rows, view] place behind the prefix
    inside = (offsets >= 0) & (offsets < nodes)
    own = sees.gather(2, offsets.clamp(0, nodes - 1)[:, None].expand(-1, nodes, -1)) & inside[:, None]
    allowed = own | (offsets < 0)[:, None]
    mask = torch.zeros(allowed.shape, dtype=dtype, device=parents.device).masked_fill_(~allowed, torch.finfo(dtype).min)
    slots = lengths[:, None] + torch.arange(nodes, device=parents.device)
    return Layout(lengths[:, None] + sees.sum(-1) - 1, slots, mask[:, None].repeat(1, 1, fold, 1))
