from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.registry import Knob
from specviz.tree import chain

if TYPE_CHECKING:
    from specviz.target import Target


class PromptLookup(Drafter):
    """Copies what followed the last time these tokens appeared. No training; good at rewriting and summarising."""

    def __init__(
        self,
        target: Target,
        *,
        ngram: Annotated[int, Knob("Longest match", "Tokens of the end of the text to look for; shorter matches are tried next.", 1, 8, 1)] = 3,
        length: Annotated[int, Knob("Copied tokens", "Tokens copied after a match.", 1, 32, 1)] = 10,
    ) -> None:
        super().__init__(target)
        self.ngram, self.length = ngram, length

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a chain of copied tokens; the note says where they came from and how long the match was."""
        index: dict[tuple[int, ...], int] = {}  # n-gram -> position right after its latest occurrence
        indexed = 0
        while True:
            indexed = self._extend(index, seen.tokens, indexed)
            origin, match = self._find(index, seen.tokens)
            copied = seen.tokens[origin : origin + min(self.length, seen.room)] if match else ()
            note = (("match", match), ("origin", origin if match else None))
            seen = yield chain(seen.next_token, copied, [1.0] * len(copied), note=note)

    def _extend(self, index: dict[tuple[int, ...], int], tokens: Sequence[int], indexed: int) -> int:
        for end in range(indexed + 1, len(tokens)):  # an n-gram that ends the text has no continuation yet
            for n in range(1, min(self.ngram, end) + 1):
                index[tuple(tokens[end - n : end])] = end
        return len(tokens) - 1

    def _find(self, index: dict[tuple[int, ...], int], tokens: Sequence[int]) -> tuple[int, int]:
        """Returns (position after the latest occurrence of the longest match, its length), or (0, 0)."""
        for n in range(min(self.ngram, len(tokens)), 0, -1):
            if (place := index.get(tuple(tokens[-n:]))) is not None:
                return place, n
        return 0, 0
