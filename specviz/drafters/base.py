"""What a drafter is: a generator that yields a tree and receives what came of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from specviz.sampling import Sampling, Uniform
from specviz.tree import TokenTree

if TYPE_CHECKING:
    import torch

    from specviz.target import Target


@dataclass(frozen=True)
class Feedback:
    """What a drafter sees of one row after a round, and first after prefill.

    tokens      all tokens so far, prompt and the next root (`tokens[-1]`) included
    path        accepted nodes of ITS last tree, in order (empty after prefill)
    hidden      {tap: [rows, H]} of the newly committed tokens: the prompt first, then root and path of each round
    logits      [nodes, vocab] at every node of its last tree, None after prefill
    room        deepest candidate that can still be emitted (0: only the bonus token fits)
    """

    row: int
    tokens: Sequence[int]
    path: tuple[int, ...]
    hidden: Mapping[int, torch.Tensor]
    logits: torch.Tensor | None
    sampling: Sampling
    uniform: Uniform
    room: int

    @property
    def next_token(self) -> int:
        """The next root: emitted, but not yet seen by the target."""
        return self.tokens[-1]

    @property
    def argmax(self) -> tuple[int, ...]:
        """The target's most likely token at every node of the last tree; empty after prefill."""
        return () if self.logits is None else tuple(self.logits.argmax(-1).tolist())

    @property
    def position(self) -> int:
        """Index of the next root in the text; its children are emitted at position + 1."""
        return len(self.tokens) - 1


Flow = Generator[list[TokenTree], list[Feedback], None]
RowFlow = Generator[TokenTree, Feedback, None]


class Drafter(ABC):
    """Proposes candidate trees. State lives in the generator's local variables, so two runs never share any.

    The first line of a drafter's docstring is its description in the app. Constructed as `Drafter(target, shape=..., **knobs)`
    by `specviz.build`; `default_shape` None means that the method has no tree shape to choose.
    """

    default_shape: ClassVar[str | None] = None
    default_knobs: ClassVar[Mapping[str, Any]] = {}  # of the default shape, when nothing about the shape is asked for
    learned: ClassVar[bool] = False
    wide: ClassVar[bool] = False  # all levels come from one draft step, so that a wide tree costs no more than a narrow one
    taps: tuple[int, ...] = ()

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = type(self).__name__
        self.spec: Mapping[str, Any] = {"knobs": {}, "shape": None}  # filled in by `specviz.build` for the trace

    @property
    def stops(self) -> bool:
        """True where a growing tree had better stop by itself: levels are drafted one by one, and each takes time of its own."""
        return not (self.wide or self.target.runs_ahead)  # a replay runs all levels at once

    @abstractmethod
    def draft(self, seen: list[Feedback]) -> Flow:
        """Yields one tree per active row, in the order of `seen`; receives the next Feedback of the rows still active."""

    def ready(self, seen: Sequence[Feedback]) -> bool:
        """False when drafting from here on would have to capture a graph first; `capture` does that ahead, so that it is no drafting time."""
        return True

    def capture(self, seen: Sequence[Feedback]) -> None:  # noqa: B027 (most drafters have nothing to capture)
        """Captures what drafting from here on replays, if anything."""

    def describe(self) -> dict[str, Any]:
        """Returns what a trace records about this drafter beyond its knobs: checkpoint, fingerprint, warnings."""
        return {}


def per_row(draft_row: Callable[[Any, Feedback], RowFlow]) -> Callable[[Any, list[Feedback]], Flow]:
    """Lifts a one-row generator method to `draft`: each row gets a generator of its own, closed when the row ends."""

    def draft(self: Any, seen: list[Feedback]) -> Flow:
        flows: dict[int, RowFlow] = {}
        try:
            while True:
                for ended in flows.keys() - {feedback.row for feedback in seen}:
                    flows.pop(ended).close()
                trees = []
                for feedback in seen:
                    if feedback.row in flows:
                        trees.append(flows[feedback.row].send(feedback))
                    else:
                        flows[feedback.row] = draft_row(self, feedback)
                        trees.append(next(flows[feedback.row]))
                seen = yield trees
        finally:
            for flow in flows.values():
                flow.close()

    draft.__doc__ = draft_row.__doc__
    return draft
