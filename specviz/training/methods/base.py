"""What a learned drafter brings to the fit loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from specviz.training.dataset import Batch
from specviz.training.soft_loss import rows_at_once, soft_cross_entropy


@dataclass  # not frozen itself: `place` moves it once, before training
class Frozen:
    """The parts of the target that training reads: nothing here is trained or saved."""

    config: Any
    embedding: Tensor  # [vocab, hidden]
    rows: Tensor  # [draft vocab, hidden] LM-head rows of the draft vocabulary
    vocabulary: Tensor  # [draft vocab] token ids
    norm: Tensor  # [hidden] weight of the target's final norm; ones where it has none

    def place(self, device: torch.device, precision: str) -> None:
        """Moves everything to the device; the rows take the dtype of the matrix products ("bf16" or "fp32"), so that they are converted once."""
        self.embedding, self.vocabulary = self.embedding.to(device), self.vocabulary.to(device)
        self.rows = self.rows.to(device, {"bf16": torch.bfloat16, "fp32": torch.float32}[precision])


@dataclass(frozen=True)
class Hits:
    """Top-1 hits along a chain, by depth: `reached[d]` rows were right at all depths before d, `right[d]` of them also at d."""

    reached: Tensor  # [depth]
    right: Tensor  # [depth]

    def __add__(self, other: Hits) -> Hits:
        return Hits(self.reached + other.reached, self.right + other.right)

    def conditional(self) -> list[float]:
        """Returns the acceptance at every depth given that the parent was accepted."""
        return (self.right / self.reached.clamp(min=1)).tolist()

    def chain_tau(self) -> float:
        """Returns tokens per round of a top-1 chain at temperature 0: 1 + the mean number of leading hits."""
        return 1.0 + float(self.right.sum() / self.reached[0].clamp(min=1))


class Lesson(Protocol):
    """A method as the fit loop sees it."""

    method: str
    module: nn.Module
    frozen: Frozen
    taps: tuple[int, ...]

    def sizes(self) -> dict[str, Any]: ...

    def loss(self, batch: Batch, chance: torch.Generator) -> Mapping[str, Tensor]:
        """Returns {"loss": scalar to minimise, and any parts worth logging}."""

    def hits(self, batch: Batch) -> Hits:
        """Returns chain hits of a batch whose answers are the target's greedy text."""


def word_losses(outputs: Sequence[Tensor], batch: Batch, frozen: Frozen) -> list[Tensor]:
    """Returns this part's share of the mean soft cross-entropy of every depth, scalars, for states `[B, T, hidden]` as the LM-head rows read them.

    Depth d (from 0) is asked for the token d + 2 ahead; the target's own distribution is what it should say.
    """
    losses = []
    for depth, output in enumerate(outputs):
        targets = batch.ahead(depth + 2)
        mask = targets.mask
        losses.append(targets.mean(soft_cross_entropy(output[mask].float(), frozen.rows, targets.values[mask], targets.indices[mask])))
    return losses


def faded(losses: Sequence[Tensor], decay: float) -> Tensor:
    """Returns the sum of the losses, each `decay` times as important as the one before it; the first counts whole."""
    return torch.stack([decay**depth * loss for depth, loss in enumerate(losses)]).sum()


def count_hits(guesses: list[Tensor], batch: Batch) -> Hits:
    """Returns the hits of top-1 token guesses `[B, T]`, one tensor a depth; depth d (from 0) is about the token d + 2 ahead.

    A token outside the draft vocabulary can only be a miss, and counts as one. Rows too near the end to be asked about
    every depth are left out, so that all depths speak of the same rows.
    """
    alive = batch.answered(len(guesses) + 1)
    reached, right = [], []
    for depth, guess in enumerate(guesses):
        reached.append(alive.sum())
        alive = alive & (guess == batch.ids.roll(-(depth + 2), 1))
        right.append(alive.sum())
    return Hits(torch.stack(reached).double(), torch.stack(right).double())


def top_tokens(hidden: Tensor, frozen: Frozen) -> Tensor:
    """Returns the most likely draft-vocabulary token of each row, for predicted states `[B, T, hidden]`."""
    guesses = [(part.to(frozen.rows.dtype) @ frozen.rows.T).argmax(-1) for part in hidden.flatten(0, 1).split(rows_at_once(hidden.device))]
    return frozen.vocabulary[torch.cat(guesses)].view(hidden.shape[:2])
