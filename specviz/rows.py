"""Rows: the requests of one run, and the state of each while it decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """One prompt of a run: its token ids, and the text that a person wrote."""

    ids: tuple[int, ...]
    prompt: str = ""


@dataclass
class Row:
    """The state of one request while it decodes."""

    index: int
    tokens: list[int]  # prompt and everything emitted; the last one is the next root
    prompt: int  # prompt length
    limit: int  # emit at most this many tokens
    why_limit: str  # reason given when the limit ends the run: length or context
    rounds: int = 0
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def emitted(self) -> list[int]:
        return self.tokens[self.prompt :]

    @property
    def room(self) -> int:
        """Deepest candidate that can still be emitted with a bonus token after it."""
        return max(0, self.limit - (len(self.tokens) - self.prompt) - 1)

    def take(self, candidates: Sequence[int], eos: frozenset[int]) -> list[int]:
        """Appends what may be emitted, up to an end token or the limit; returns it and notes why the row ended."""
        taken: list[int] = []
        for token in candidates:
            taken.append(token)
            if token in eos:
                self.reason = "eos"
                break
            if len(self.tokens) - self.prompt + len(taken) >= self.limit:
                self.reason = self.why_limit
                break
        self.tokens += taken
        return taken

    def charge(self, seconds: dict[str, float]) -> dict[str, float]:
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value
        return seconds
