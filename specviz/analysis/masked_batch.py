"""What the loss asks for in a training batch, token by token: plain records that a terminal or a page can show."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT, FIRST, ASKED, OUTSIDE = "prompt", "first", "asked", "outside"


@dataclass(frozen=True)
class MaskedRecord:
    """One record of a batch: its tokens, and for each what the first draft depth makes of it.

    prompt   given, never asked for
    first    the answer's first token: the target's own forward of the prompt gives it, so no head is asked
    asked    counts in the loss
    outside  would be asked for, but lies outside the draft vocabulary and is left out
    """

    tokens: tuple[int, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class DepthCount:
    """How many rows of the batch count at a draft depth (from 1), and how many are left out for the draft vocabulary."""

    depth: int
    rows: int
    outside: int


@dataclass(frozen=True)
class MaskedBatch:
    """The first batch of a fit, as its loss sees it."""

    records: tuple[MaskedRecord, ...]
    depths: tuple[DepthCount, ...]
    draft_vocab: int
