"""The largest logits of every row, and where single tokens stand, without going through rows of 50,000 tokens more often than needed."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True)
class Best:
    """The largest logits of some rows as plain numbers, in descending order: tokens, probabilities and logits."""

    ids: list[list[int]]
    p: list[list[float]]
    values: list[list[float]]


def own_columns(rows: Sequence[int], tokens: Sequence[int], logits: torch.Tensor, p: torch.Tensor, best: Best) -> tuple[list[float], list[int]]:
    """Returns p and rank of each of `tokens` in its row; a whole row is compared only for a token that is not among the best."""
    own, rank, far = [0.0] * len(tokens), [0] * len(tokens), list[int]()
    for place, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        if token not in best.ids[row]:
            far.append(place)
            continue
        at = best.ids[row].index(token)
        own[place], rank[place] = best.p[row][at], best.values[row].index(best.values[row][at])  # only larger ones count, not equal ones
    if far:
        row, token = torch.tensor([[rows[place] for place in far], [tokens[place] for place in far]], device=logits.device)
        larger = logits.index_select(0, row).gt_(logits[row, token][:, None]).sum(-1)
        for place, value, count in zip(far, p[row, token].tolist(), larger.tolist(), strict=True):
            own[place], rank[place] = value, int(count)
    return own, rank
