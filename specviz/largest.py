"""The largest logits of every row, without reading rows of 50,000 tokens more than once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

BLOCK = 128  # tokens of which a search first looks at the largest alone
FEW_ROWS = 2  # so many rows are searched faster as they are


@dataclass(frozen=True)
class Largest:
    """The largest logits of every row and their tokens, [rows, count] each, in descending order."""

    values: torch.Tensor
    indices: torch.Tensor


def peaks_of(logits: torch.Tensor) -> torch.Tensor | None:
    """Returns the largest logit of every BLOCK tokens, [rows, blocks]; None where looking at whole rows is as fast.

    A search in a row of 50,000 then looks at few blocks closely, which takes a quarter of the time.
    """
    rows, vocab = logits.shape
    return None if rows <= FEW_ROWS or vocab % BLOCK or vocab == BLOCK else logits.view(rows, -1, BLOCK).amax(-1)


def largest(logits: torch.Tensor, count: int, peaks: torch.Tensor | None = None) -> Largest:
    """Returns what `logits.topk(count)` does, [rows, count] in descending order; a block not among the `count` highest peaks holds none of them."""
    count = min(count, logits.shape[-1])
    peaks = peaks_of(logits) if peaks is None else peaks
    if peaks is None:
        found = logits.topk(count, -1)
        return Largest(found.values, found.indices)
    high = peaks.topk(min(count, peaks.shape[-1]), -1).indices
    found = logits.view(len(logits), -1, BLOCK)[torch.arange(len(logits), device=logits.device)[:, None], high].flatten(1).topk(count, -1)
    return Largest(found.values, high.gather(1, found.indices // BLOCK) * BLOCK + found.indices % BLOCK)


def most_likely(logits: torch.Tensor, peaks: torch.Tensor | None) -> torch.Tensor:
    """Returns `logits.argmax(-1)`: the first of equal ones."""
    if peaks is None:
        return logits.argmax(-1)
    row, block = torch.arange(len(logits), device=logits.device), peaks.argmax(-1)
    return block * BLOCK + logits.view(len(logits), -1, BLOCK)[row, block].argmax(-1)
