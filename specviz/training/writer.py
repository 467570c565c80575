"""Writes many answers at once: a row that ends is refilled at once, so the batch is always full and nothing is padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specviz.evidence import draw_rows
from specviz.sampling import Uniform
from specviz.tree import TokenTree


@dataclass(frozen=True)
class Ask:
    """One answer to write: the prompt's token ids, the temperature (0: greedy) and the most tokens of the answer."""

    prompt: Sequence[int]
    temperature: float
    limit: int


@dataclass
class _Row:
    """An answer being written."""

    number: int
    ask: Ask
    answer: list[int] = field(default_factory=list)


def write(target: Any, asks: Sequence[Ask], *, seed: int, batch: int = 64) -> list[list[int]]:
    """Returns the target's answer to each of `asks`, its end token included where it was reached.

    Uniforms are keyed by (seed, number of the ask, position), so an answer does not depend on which others are written
    beside it, up to rounding. Memory: `batch` rows of cache, as long as the longest prompt and answer.
    """
    answers: list[list[int]] = [[] for _ in asks]
    waiting = sorted(range(len(asks)), key=lambda n: len(asks[n].prompt), reverse=True)  # popped from the end: short ones first
    size = min(batch, len(asks))
    if not size:
        return answers
    cache = target.new_cache(size, max(len(ask.prompt) + ask.limit for ask in asks) + 1)
    rows: dict[int, _Row] = {}
    while waiting or rows:
        for place in range(size):
            if place not in rows and waiting:
                rows[place] = _begin(target, cache, place, waiting.pop(), asks, seed)
        for place in [p for p, row in rows.items() if _ended(row, target.eos)]:
            row = rows.pop(place)
            answers[row.number] = row.answer
        if rows:
            _advance(target, cache, rows, seed)
    return answers


def _begin(target: Any, cache: Any, place: int, number: int, asks: Sequence[Ask], seed: int) -> _Row:
    row = _Row(number, asks[number])
    cache.rollback(place, 0)
    row.answer += _draw(target.prefill(row.ask.prompt, cache, place).logits[:, 0], [row], seed)
    return row


def _advance(target: Any, cache: Any, rows: dict[int, _Row], seed: int) -> None:
    places = sorted(rows)
    logits = target.forward([TokenTree((rows[place].answer[-1],), (-1,)) for place in places], cache, places).logits[:, 0]
    for place, token in zip(places, _draw(logits, [rows[place] for place in places], seed), strict=True):
        cache.commit(place, (0,))
        rows[place].answer.append(token)


def _ended(row: _Row, ends: frozenset[int]) -> bool:
    return row.answer[-1] in ends or len(row.answer) >= row.ask.limit


def _draw(logits: torch.Tensor, rows: Sequence[_Row], seed: int) -> list[int]:
    """Returns the next token of every row from logits `[rows, vocab]`: the argmax, or by inverse CDF at its temperature."""
    tokens: list[int] = logits.argmax(-1).tolist()
    warm = [i for i, row in enumerate(rows) if row.ask.temperature > 0]
    if warm:
        uniform = Uniform(seed)
        heat = torch.tensor([[rows[i].ask.temperature] for i in warm], device=logits.device)
        uniforms = torch.tensor([uniform(len(rows[i].answer), "write", rows[i].number) for i in warm], dtype=torch.float64, device=logits.device)
        drawn = draw_rows((logits[warm].float() / heat).softmax(-1).double(), uniforms)
        for i, token in zip(warm, drawn.tolist(), strict=True):
            tokens[i] = token
    return tokens
