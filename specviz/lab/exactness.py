"""Is a rule lossless? Sums over everything that chance can do in one round and compares the text with the target's own distribution.

The enumeration runs the product's own drafting and acceptance code. Each uniform that the code reads is cut at the numbers that it
is compared with; between two cuts nothing changes, so the pieces' lengths are exact probabilities and no sampling error is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch

from specviz.acceptance.base import Verdict
from specviz.evidence import Evidence
from specviz.sampling import Sampling, Uniform, draw, warp
from specviz.shapes.base import Growth, Sampler
from specviz.tree import TokenTree

Text = tuple[int, ...]
Table = Callable[[Text], torch.Tensor]  # text so far, root included -> distribution of the next token, [vocab] float64
Draft = Callable[[Uniform], TokenTree]  # one round's tree, drawn with these uniforms
Rule = Callable[[TokenTree, Evidence], Verdict]
Key = tuple[int, str, int]  # position, purpose, index
NARROW = 1e-12  # pieces thinner than this are rounding, not chance


class Piece(float):
    """A number in the middle of [low, high) that notes at which numbers between them the outcome may change."""

    low: float
    high: float
    cuts: set[float]

    def __new__(cls, low: float, high: float) -> Piece:
        piece = super().__new__(cls, (low + high) / 2)
        piece.low, piece.high, piece.cuts = low, high, set()
        return piece

    def cut(self, at: float) -> None:
        if self.low + NARROW < at < self.high - NARROW:
            self.cuts.add(float(at))

    def __lt__(self, other: float) -> bool:
        self.cut(other)
        return float(self) < other

    def __le__(self, other: float) -> bool:
        self.cut(other)
        return float(self) <= other

    def __gt__(self, other: float) -> bool:
        self.cut(other)
        return float(self) > other

    def __ge__(self, other: float) -> bool:
        self.cut(other)
        return float(self) >= other


class Pieces(Uniform):
    """Uniforms that lie in given pieces of [0, 1) and remember what was asked of them."""

    def __init__(self, given: Mapping[Key, tuple[float, float]]) -> None:
        super().__init__(0)
        self.given = given
        self.read: dict[Key, Piece] = {}  # in the order of reading

    def __call__(self, position: int, purpose: str, index: int = 0) -> Piece:
        key = (position, purpose, index)
        if key not in self.read:
            self.read[key] = Piece(*self.given.get(key, (0.0, 1.0)))
        return self.read[key]

    def draw(self, p: torch.Tensor, position: int, purpose: str, index: int = 0) -> int:
        piece = self(position, purpose, index)
        for edge in (p.cumsum(-1) / p.sum()).tolist():
            piece.cut(edge)
        return draw(p, float(piece))


def outcomes(play: Callable[[Uniform], Any]) -> Iterator[tuple[float, Any]]:
    """Yields (probability, result) for every outcome of `play`, which takes its randomness from the Uniform it is given.

    The probabilities sum to 1. Exact for code that compares a uniform with a number or draws with it, and does nothing else with it.
    """
    waiting: list[dict[Key, tuple[float, float]]] = [{}]
    while waiting:
        given = waiting.pop()
        uniform = Pieces(given)
        result = play(uniform)
        split = next((key for key, piece in uniform.read.items() if piece.cuts), None)
        if split is None:
            yield prod(high - low for low, high in given.values()), result
            continue
        piece = uniform.read[split]
        waiting += [given | {split: ends} for ends in pairwise([piece.low, *sorted(piece.cuts), piece.high])]


def bigram(rows: Sequence[Sequence[float]]) -> Table:
    """Returns the table in which the next token depends on the last one: rows[last] are its probabilities."""
    table = torch.tensor(rows, dtype=torch.float64)
    return lambda text: table[text[-1]]


def drafts(q: Table, shape: Callable[[Growth], TokenTree], *, sampled: bool, sampling: Sampling = Sampling(1.0), root: int = 0, depth: int = 8) -> Draft:
    """Returns one round's draft from `q` in a shape of the product, with children drawn from q, or its most likely ones."""
    vocab_size = len(q((root,)))

    def step(growth: Growth, nodes: Sequence[int]) -> torch.Tensor:
        return torch.stack([q(tuple(growth.tokens[n] for n in growth.path_to(node))).log() for node in nodes])

    def make(uniform: Uniform) -> TokenTree:
        sampler = Sampler(sampling, uniform, 0, vocab_size) if sampled else None
        return shape(Growth(root, step, depth_limit=depth, sampler=sampler))

    return make


@dataclass(frozen=True)
class Exactness:
    """The text of one round, continued by the target alone to a fixed length: its distribution beside the target's own."""

    expected: Mapping[Text, float]
    found: Mapping[Text, float]
    accepted: float  # mean number of accepted drafts
    outcomes: int

    @property
    def worst(self) -> float:
        """Largest difference of two probabilities."""
        return max(abs(p - self.found.get(text, 0.0)) for text, p in self.expected.items())

    @property
    def total_variation(self) -> float:
        return sum(abs(p - self.found.get(text, 0.0)) for text, p in self.expected.items()) / 2

    def __str__(self) -> str:
        text = max(self.expected, key=lambda t: abs(self.expected[t] - self.found.get(t, 0.0)))
        return (
            f"worst error {self.worst:.2e} at text {text}: {self.found.get(text, 0.0):.6f} instead of {self.expected[text]:.6f}; "
            f"total variation {self.total_variation:.2e}, {self.accepted:.3f} drafts accepted, {self.outcomes} outcomes"
        )


def exactness(p: Table, draft: Draft, rule: Rule, *, length: int, sampling: Sampling = Sampling(1.0)) -> Exactness:
    """Compares the distribution of `length` tokens, the first of them from one round of `draft` and `rule`, with the target's.

    A lossless rule gives `worst` below 1e-9. The root is node 0 of the drafted tree; p sees the text from the root on.
    """
    warped: dict[Text, torch.Tensor] = {}

    def target(text: Text) -> torch.Tensor:
        if text not in warped:
            warped[text] = warp(p(text).log()[None], sampling)[0]
        return warped[text]

    def play(uniform: Uniform) -> tuple[Text, int]:
        tree = draft(uniform)
        texts = [tuple(tree.tokens[n] for n in (0, *tree.path_to(node))) for node in range(len(tree))]
        verdict = rule(tree, Evidence(tree, torch.stack([p(text).log() for text in texts]), sampling, uniform, 0))
        return (*(tree.tokens[n] for n in (0, *verdict.path)), verdict.next_token), len(verdict.path)

    found: dict[Text, float] = defaultdict(float)
    accepted, count, root = 0.0, 0, 0
    for weight, (text, drafted) in outcomes(play):
        accepted, count, root = accepted + weight * drafted, count + 1, text[0]
        for whole, share in _continue(target, text[: length + 1], length + 1):
            found[whole[1:]] += weight * share
    expected = {text[1:]: share for text, share in _continue(target, (root,), length + 1)}
    return Exactness(expected, dict(found), accepted, count)


def _continue(target: Table, text: Text, length: int) -> list[tuple[Text, float]]:
    """Returns every continuation of `text` to `length` tokens with its probability under the target."""
    level = [(text, 1.0)]
    while len(level[0][0]) < length:
        level = [((*so_far, token), share * p) for so_far, share in level for token, p in enumerate(target(so_far).tolist())]
    return level
