"""Writes many answers at once: rows that end are soon refilled, so the batch is nearly always full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specviz.evidence import draw_rows
from specviz.sampling import Uniform
from specviz.staging import send
from specviz.tree import TokenTree

REFILL = 8  # rows that ended are refilled together once they are one in so many: their prompts share a forward


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

    @property
    def last(self) -> int:
        """The token that the target has not seen yet: at first the prompt's last one."""
        return self.answer[-1] if self.answer else self.ask.prompt[-1]


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
        free = [place for place in range(size) if place not in rows]
        if waiting and len(free) >= min(max(1, size // REFILL), len(waiting)):
            begun = {place: waiting.pop() for place in free[: len(waiting)]}
            rows |= {place: _Row(number, asks[number]) for place, number in begun.items()}
            _begin(target, cache, {place: rows[place] for place in begun})
        _advance(target, cache, rows, seed)
        for place in [p for p, row in rows.items() if _ended(row, target.eos)]:
            row = rows.pop(place)
            answers[row.number] = row.answer
    return answers


def _begin(target: Any, cache: Any, rows: dict[int, _Row]) -> None:
    """Runs the prompts up to their last token, which the row's first step takes."""
    for place in rows:
        cache.rollback(place, 0)
    target.prefill_rows([row.ask.prompt[:-1] for row in rows.values()], cache, list(rows))


def _advance(target: Any, cache: Any, rows: dict[int, _Row], seed: int) -> None:
    places = sorted(rows)
    logits = target.forward([TokenTree((rows[place].last,), (-1,)) for place in places], cache, places).logits[:, 0]
    for place, token in zip(places, _draw(logits, [rows[place] for place in places], seed), strict=True):
        cache.commit(place, (0,))
        rows[place].answer.append(token)


def _ended(row: _Row, ends: frozenset[int]) -> bool:
    return row.answer[-1] in ends or len(row.answer) >= row.ask.limit


def _draw(logits: torch.Tensor, rows: Sequence[_Row], seed: int) -> list[int]:
    """Returns the next token of every row from logits `[rows, vocab]`: the argmax, or by inverse CDF at its temperature."""
    best = logits.argmax(-1)
    warm = [i for i, row in enumerate(rows) if row.ask.temperature > 0]
    if warm:
        uniform = Uniform(seed)
        heat = send([[rows[i].ask.temperature] for i in warm], logits.device, torch.float32)
        uniforms = send([uniform(len(rows[i].answer), "write", rows[i].number) for i in warm], logits.device, torch.float64)
        drawn = draw_rows((logits.index_select(0, send(warm, logits.device)).float() / heat).softmax(-1).double(), uniforms)
        best[send(warm, logits.device)] = drawn
    tokens: list[int] = best.tolist()
    return tokens
