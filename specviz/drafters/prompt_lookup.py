from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.registry import Knob
from specviz.tree import chain

if TYPE_CHECKING:
    from specviz.target import Target


SHORT = 3  # copied tokens to begin with where every node takes time: three cost next to nothing beyond the one that is verified anyway
PAYS = 0.07  # accepted tokens per draft below which nothing is copied for a while: about what three nodes cost on a CPU, in forwards
HOPE = 0.5  # of the first draft, in accepted tokens
MEMORY = 0.1  # weight of the newest draft in the running mean


class Thrift:
    """Decides how much of a copy is worth verifying, from what the drafts of this run brought so far and from nothing else.

    A copy that is accepted whole doubles what the next may have; any other brings that back to `short`. `gain` is a running mean of accepted
    tokens per draft: below PAYS copies are left out, first one, then two, four ... up to `most` in a row, with one tried in between.
    It counts rounds and reads no clock, so a run can be repeated exactly.
    """

    def __init__(self, most: int, short: int = SHORT) -> None:
        self.most, self.short, self.length, self.gain, self.left, self.next = most, short, short, HOPE, 0, 1

    def allowed(self, copied: int) -> int:
        """Returns how many of `copied` tokens to draft now; counts one of a pause's rounds where that is none."""
        if self.left:
            self.left -= 1
            return 0
        return min(copied, self.length) if self.most else copied

    def learn(self, accepted: int, drafted: int) -> None:
        """Takes what a draft brought into account."""
        self.length = 2 * drafted if accepted == drafted >= self.short else self.short
        self.gain += MEMORY * (accepted - self.gain)
        if self.gain >= PAYS:
            self.next = 1
        else:
            self.left, self.next = min(self.next, self.most), 2 * self.next


class PromptLookup(Drafter):
    """Copies what followed the last time these tokens appeared. No training; good at rewriting and summarising."""

    def __init__(
        self,
        target: Target,
        *,
        ngram: Annotated[int, Knob("Longest match", "Tokens of the end of the text to look for; shorter matches are tried next.", 1, 8, 1)] = 3,
        length: Annotated[
            int, Knob("Copied tokens", "Tokens copied after a match, at most; on a CPU 3 at first, twice as many after a copy that is accepted whole.", 1, 32, 1)
        ] = 10,
        pause: Annotated[
            int,
            Knob(
                "Longest pause", "Copies that are hardly ever accepted stop for up to this many rounds. 0 never stops, and always copies in full.",
                0, 64, 1, advanced=True,
            ),
        ] = 8,
    ) -> None:  # fmt: skip
        super().__init__(target)
        self.short = SHORT if target.device.type == "cpu" else length  # a GPU verifies a whole copy in the time of one token
        self.ngram, self.length, self.pause = ngram, length, pause

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a chain of copied tokens; the note says where they came from, how long the match was, what drafts bring, and when they pause."""
        index: dict[tuple[int, ...], int] = {}  # n-gram -> position right after its latest occurrence
        indexed, thrift = 0, Thrift(self.pause, self.short)
        while True:
            indexed = self._extend(index, seen.tokens, indexed)
            origin, match = self._find(index, seen.tokens)
            copied = seen.tokens[origin : origin + min(self.length, seen.room)] if match else ()
            allowed = thrift.allowed(len(copied)) if copied else 0
            note: tuple[tuple[str, Any], ...] = (("match", match), ("origin", origin if match else None), ("gain", round(thrift.gain, 2)))
            if copied and not allowed:
                note += (("paused", f"copies are hardly ever accepted; {thrift.left} more left out"),)
            seen = yield chain(seen.next_token, copied[:allowed], [1.0] * allowed, note=note)
            if allowed:
                thrift.learn(len(seen.path), allowed)

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
