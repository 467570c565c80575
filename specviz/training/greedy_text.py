"""Greedy text of the target with its states: the held-out part of captured features, or the answers of a fixed text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from specviz.drafters.heads import HeadDrafter
from specviz.errors import BadInput
from specviz.training.data import held_out
from specviz.training.features import Capture, open_capture
from specviz.training.fixed_text import FixedText


@dataclass(frozen=True)
class GreedyText:
    """Text that the target wrote greedily from `start` on, with its states `{tap: [len(ids), width]}`."""

    ids: Sequence[int]
    start: int
    states: Mapping[int, torch.Tensor]


def captured_texts(folders: Sequence[Path], drafter: HeadDrafter, limit: int | None = None) -> Iterator[GreedyText]:
    """Yields the first `limit` greedy records that the fit of this drafter's head held out, with their stored states.

    Raises BadInput for features of another target than the drafter's, or without the taps that it reads.
    """
    captures = [_fitting(folder, drafter) for folder in folders]  # all of them before the first is read
    return islice((text for capture in captures for text in _held_out(capture, drafter)), limit)


def _fitting(folder: Path, drafter: HeadDrafter) -> Capture:
    capture, weights = open_capture(folder), drafter.target.fingerprint.weights
    if capture.fingerprint.weights != weights:
        raise BadInput(f"The features in {folder} are of weights {capture.fingerprint.weights}, but the target's are {weights}. Capture this target's.")
    if lost := sorted(set(drafter.taps) - set(capture.taps)):
        raise BadInput(f"The features in {folder} lack tap {lost[0]}, which this head reads; they have {list(capture.taps)}. Capture them again.")
    return capture


def _held_out(capture: Capture, drafter: HeadDrafter) -> Iterator[GreedyText]:
    share = drafter.config.training.get("held_out", 0.05)
    for shard in capture.done():
        stores, row = {tap: capture.rows(shard, tap) for tap in drafter.taps}, 0
        for record in capture.records(shard):
            first, row = row, row + len(record.ids)
            if not record.temperature and held_out(record, share):
                yield GreedyText(record.ids, record.answer_start, {tap: torch.from_numpy(store[first:row].astype("float32")) for tap, store in stores.items()})


def fixed_texts(text: FixedText, taps: Sequence[int]) -> Iterator[GreedyText]:
    """Yields the answers of a fixed text whose states were kept."""
    for place, one in enumerate(text.answers):
        yield GreedyText(one.ids, one.prompt, text.states(place, taps))


def newest_capture(below: Path, fingerprint: str) -> Path | None:
    """Returns the newest folder of features of these weights below a folder, as `features` names them."""
    found = [meta.parent for meta in below.glob(f"{fingerprint}-*/capture.json")]
    return max(found, key=lambda folder: (folder / "capture.json").stat().st_mtime, default=None)
