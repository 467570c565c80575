"""EAGLE-3's draft vocabulary: d2t holds OFFSETS (target id = draft id + d2t[draft id]), t2d marks the target ids that are in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specviz.checkpoints.base import ERROR, Problem
from specviz.errors import BadFile

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files


@dataclass(frozen=True)
class DraftVocabulary:
    """The target ids of the draft columns, and how d2t was to be read: "offset", "absolute" or "none" (the whole vocabulary)."""

    ids: Tensor
    kind: str


def offsets(ids: Tensor) -> Tensor:
    """Returns d2t for target ids `[draft vocab]`."""
    return ids.long() - torch.arange(len(ids))


def marks(ids: Tensor, vocab: int) -> Tensor:
    """Returns t2d `[vocab]` for target ids."""
    table = torch.zeros(vocab, dtype=torch.bool)
    table[ids.long()] = True
    return table


def read_mapping(files: Files, vocab: int, draft_vocab: int) -> DraftVocabulary:
    """Returns the mapping of a checkpoint. Raises BadFile when d2t makes sense neither as offsets nor as ids."""
    if "d2t" not in files:
        if draft_vocab != vocab:
            raise BadFile(f"The head has {draft_vocab} of {vocab} tokens but no d2t, so its columns cannot be named: add d2t and t2d from its training run.")
        return DraftVocabulary(torch.arange(vocab), "none")
    d2t = files.tensor("d2t").long()
    if d2t.shape != (draft_vocab,):
        raise BadFile(f"d2t has shape {list(d2t.shape)}, expected [{draft_vocab}], one entry per draft token: it belongs to another head.")
    t2d = files.tensor("t2d").bool() if files.shape("t2d") == (vocab,) else None
    shifted = torch.arange(draft_vocab) + d2t
    if _fits(shifted, vocab, t2d):
        return DraftVocabulary(shifted, "offset")
    if _fits(d2t, vocab, t2d):
        return DraftVocabulary(d2t, "absolute")
    if _fits(shifted, vocab, None):
        return DraftVocabulary(shifted, "offset")
    raise BadFile(
        f"d2t gives no set of {draft_vocab} different token ids below {vocab}, neither as offsets nor as ids: take d2t and t2d from the head's training run."
    )


def mapping_problems(files: Files, vocab: int, draft_vocab: int) -> Iterator[Problem]:
    """Yields what is wrong with d2t and t2d."""
    if "t2d" in files and files.shape("t2d") != (vocab,):
        yield Problem(
            "vocabulary_mismatch",
            f"t2d has shape {list(files.shape('t2d'))}, but config.json says {vocab} tokens: the head belongs to another tokenizer.",
            ERROR,
        )
    try:
        mapping = read_mapping(files, vocab, draft_vocab)
    except BadFile as problem:
        yield Problem("draft_vocabulary", str(problem), ERROR)
        return
    if mapping.kind == "absolute":
        yield Problem(
            "d2t_absolute",
            "d2t holds target ids, not offsets, so every other loader would draft wrong tokens: subtract arange(len(d2t)) from it (it is read as ids here).",
        )
    elif "d2t" in files and "t2d" not in files and draft_vocab < vocab and bool((files.tensor("d2t").diff() > 0).all()):
        yield Problem(
            "d2t_absolute",
            "d2t rises at every entry, as target ids do and offsets hardly ever: if they are ids, subtract arange(len(d2t)) (it is read as offsets here).",
        )
    if files.shape("t2d") == (vocab,) and not torch.equal(files.tensor("t2d").bool(), marks(mapping.ids, vocab)):
        yield Problem("t2d_disagrees", "t2d and d2t name different sets of tokens: d2t is followed here, write t2d again from it.")


def _fits(ids: Tensor, vocab: int, t2d: Tensor | None) -> bool:
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= vocab or len(ids.unique()) != len(ids):
        return False
    return t2d is None or torch.equal(t2d, marks(ids, vocab))
