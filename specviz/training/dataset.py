"""Batches for a fit: ids, captured states and the target's own next-token distribution, cut from memory maps."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.errors import BadFile
from specviz.training.data import Record, held_out
from specviz.training.features import Capture
from specviz.training.soft_loss import rows_at_once

TOP = 32  # of the target's distribution; the rest of its mass is spread by renormalising


@dataclass(frozen=True)
class Item:
    """A record and where its rows lie; `shard` counts through all captures."""

    record: Record
    shard: int
    row: int


@dataclass(frozen=True)
class Targets:
    """What a head that looks at row i should say about token i + offset, for every row; `mask` `[B, T]` picks the rows that count."""

    tokens: Tensor  # [B, T] token ids; only meaningful under the mask
    values: Tensor  # [B, T, TOP] the target's own distribution on the draft vocabulary
    indices: Tensor  # [B, T, TOP] draft ids
    mask: Tensor  # [B, T]
    missed: Tensor  # how many answer tokens lie outside the draft vocabulary and are left out of the mask
    total: Tensor  # rows that count in the whole batch, of which this may be one process's part; at least 1

    def mean(self, rows: Tensor) -> Tensor:
        """Returns this part's share of the whole batch's mean of values `[rows that count, ..]`: the parts' shares add up to it."""
        each = rows[0].numel() if len(rows) else 1
        share: Tensor = rows.sum() / (self.total * each)
        return share

    def outside(self) -> Tensor:
        """Returns this part's share of the rows left out because their token is not in the draft vocabulary."""
        share: Tensor = self.missed / (self.missed + self.total)
        return share


@dataclass(frozen=True)
class Records:
    """Token ids of records padded on the right, `[B, T]`, with where answers start and records end, `[B]` each."""

    ids: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, records: Sequence[Record]) -> Records:
        """Pads the records to the longest of them."""
        longest = max(len(record.ids) for record in records)
        ids = torch.tensor([[*record.ids, *[0] * (longest - len(record.ids))] for record in records])
        return cls(ids, torch.tensor([record.answer_start for record in records]), torch.tensor([len(record.ids) for record in records]))

    def answered(self, offset: int) -> Tensor:
        """Returns the mask `[B, T]` of rows that are asked about the answer token `offset` ahead, be it in the draft vocabulary or not."""
        rows = torch.arange(self.ids.shape[1], device=self.ids.device)
        return (rows >= self.starts[:, None] - 1) & (rows + offset < self.lengths[:, None])

    def part(self, which: slice) -> Records:
        return Records(self.ids[which], self.starts[which], self.lengths[which])

    def to(self, device: torch.device) -> Records:
        return Records(self.ids.to(device), self.starts.to(device), self.lengths.to(device))


@dataclass(frozen=True)
class Batch:
    """Records padded on the right to `[B, T]`: all of a batch, or the part of it that one of several processes trains on."""

    own: Records
    states: dict[int, Tensor]  # {tap: [B, T, width]}; stored as fp16, fp32 once `to` brought the batch to its device
    values: Tensor  # [B, T, TOP] distribution of the NEXT token at each row
    indices: Tensor  # [B, T, TOP]
    known: Tensor  # [vocab] bool: is the token in the draft vocabulary
    whole: Records
    which: slice  # the rows of `whole` that are `own`

    @property
    def ids(self) -> Tensor:
        return self.own.ids

    def to(self, device: torch.device) -> Batch:
        """Returns the batch on another device, in the types to compute with: half the bytes travel."""
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in ("own", "known", "whole")}
        moved |= {"values": self.values.to(device).float(), "indices": self.indices.to(device).long()}
        return replace(self, states={tap: state.to(device).float() for tap, state in self.states.items()}, **moved)

    def ahead(self, offset: int) -> Targets:
        """Returns the targets `offset` tokens after each row: the token, and the distribution it was drawn from.

        Rows count from the last prompt token on (it is the first one a drafter is asked about), while their target is an
        answer token inside the draft vocabulary.
        """
        within = self.answered(offset)
        tokens = self.ids.roll(-offset, 1)
        mask = within & self.known[tokens]
        missed = within.sum() - mask.sum()
        total = (self.whole.answered(offset) & self.known[self.whole.ids.roll(-offset, 1)]).sum().clamp(min=1)
        return Targets(tokens, self.values.roll(1 - offset, 1), self.indices.roll(1 - offset, 1), mask, missed, total)

    def answered(self, offset: int) -> Tensor:
        """Returns the mask of `ahead` with tokens outside the draft vocabulary counted in: what a measurement divides by."""
        return self.own.answered(offset)

    def uniform(self, width: int, chance: torch.Generator) -> Tensor:
        """Returns noise in [0, 1) `[B, T, width]`, drawn for the whole batch on the CPU: every device and split sees the same."""
        noise = torch.rand((*self.whole.ids.shape, width), generator=chance)
        return noise[self.which].to(self.ids.device)


class Dataset:
    """Captured records split by prompt into `train` and `held_out`; makes padded batches. Several captures count as one."""

    def __init__(self, captures: Sequence[Capture], taps: Sequence[int], vocabulary: Tensor, vocab_size: int, share: float, data_share: float = 1.0) -> None:
        self.taps, self._width = tuple(taps), captures[0].width
        self._shards = [(capture, n) for capture in captures for n in capture.done()]
        self.vocabulary = vocabulary
        self.known = torch.zeros(vocab_size, dtype=torch.bool)
        self.known[vocabulary] = True
        self._rows = {(place, tap): capture.rows(n, tap) for place, (capture, n) in enumerate(self._shards) for tap in self.taps}
        self._teacher: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.train: list[Item] = []
        self.held_out: list[Item] = []
        for item in _items(self._shards, self._rows):
            if held_out(item.record, share):
                self.held_out.append(item)
            elif data_share >= 1.0 or held_out(item.record, share + (1.0 - share) * data_share):
                self.train.append(item)

    def teach(self, rows: Tensor) -> None:
        """Computes (or reads back) the target's top distribution for every shard, on the device of the target's draft rows `[draft vocab, d]`."""
        key = hashlib.sha256(self.vocabulary.numpy().tobytes()).hexdigest()[:8]
        for place, (capture, n) in enumerate(self._shards):
            stem = capture.folder / f"{n:04d}-teacher-{key}"
            if not stem.with_suffix(".npz").exists():
                _write_teacher(stem, capture.rows(n, max(capture.taps)), capture.records(n), rows)
            self._teacher[place] = _read_teacher(stem.with_suffix(".npz"))

    def batch(self, items: Sequence[Item], part: int = 0, parts: int = 1) -> Batch:
        """Returns the items as one padded batch; of several `parts`, the one number `part`, padded as the whole is."""
        whole, which = Records.of([item.record for item in items]), slice(part, None, parts)
        longest, mine = whole.ids.shape[1], items[which]
        states = {tap: self._gather(mine, longest, [self._rows[i.shard, tap] for i in mine], self._width) for tap in self.taps}
        values = self._gather(mine, longest, [self._teacher[i.shard][0] for i in mine], TOP)
        indices = self._gather(mine, longest, [self._teacher[i.shard][1] for i in mine], TOP)
        return Batch(whole.part(which), states, values, indices, self.known, whole, which)

    @staticmethod
    def _gather(items: Sequence[Item], longest: int, stores: Sequence[np.ndarray], width: int) -> Tensor:
        out = np.zeros((len(items), longest, width), stores[0].dtype if stores else np.float32)
        for b, (item, store) in enumerate(zip(items, stores, strict=True)):
            out[b, : len(item.record.ids)] = store[item.row : item.row + len(item.record.ids)]
        return torch.from_numpy(out)

    def epoch(self, seed: int, tokens: int) -> list[list[Item]]:
        """Returns one epoch of batches in random order, each of similar lengths and at most `tokens` with padding."""
        return shuffled_batches(self.train, seed, tokens)


def shuffled_batches(items: Sequence[Item], seed: int, tokens: int) -> list[list[Item]]:
    """Groups items by (jittered) length and shuffles the groups; the same seed gives the same batches."""
    chance = random.Random(seed)
    keyed = sorted(items, key=lambda i: len(i.record.ids) * chance.uniform(0.9, 1.1))
    groups: list[list[Item]] = [[]]
    longest = 0
    for item in keyed:
        longest = max(longest, len(item.record.ids))
        if groups[-1] and longest * (len(groups[-1]) + 1) > tokens:
            groups.append([])
            longest = len(item.record.ids)
        groups[-1].append(item)
    chance.shuffle(groups)
    return groups


def _items(shards: Sequence[tuple[Capture, int]], rows: Mapping[tuple[int, int], np.ndarray]) -> Iterator[Item]:
    for place, (capture, n) in enumerate(shards):
        row = 0
        for record in capture.records(n):
            yield Item(record, place, row)
            row += len(record.ids)
        for (at, tap), store in rows.items():
            if at == place and len(store) != row:
                raise BadFile(f"{capture.folder}: shard {n} has {row} tokens but {len(store)} rows of tap {tap}. Delete {n:04d}.json and capture again.")


def _read_teacher(file: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(file) as found:
            return found["values"], found["indices"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
        raise BadFile(f"{file} is damaged ({str(problem)[:100]}). Delete it; it is made again.") from None


def _write_teacher(stem: Path, features: np.ndarray, records: Sequence[Record], rows: Tensor) -> None:
    """Prompt rows stay zero: nothing is asked about them."""
    asked = np.concatenate([np.arange(len(r.ids)) >= r.answer_start - 1 for r in records]).nonzero()[0]
    values = np.zeros((len(features), TOP), np.float16)
    indices = np.zeros((len(features), TOP), np.int32)
    for part in np.array_split(asked, max(1, len(asked) // rows_at_once(rows.device))):
        hidden = torch.from_numpy(features[part]).to(rows.device).float()
        top = (hidden @ rows.T).softmax(-1).topk(TOP)
        values[part] = (top.values / top.values.sum(-1, keepdim=True)).half().cpu().numpy()
        indices[part] = top.indices.int().cpu().numpy()
    scratch = stem.with_suffix(".part.npz")
    np.savez(scratch, values=values, indices=indices)
    scratch.replace(stem.with_suffix(".npz"))
