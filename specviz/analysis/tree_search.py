"""Tree search: from the ranks that the text's tokens had in the draft to the sparse tree that accepts most of them (Medusa, section 2.3.3)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from math import prod

RankPath = tuple[int, ...]  # ranks from the root down: (0, 2) is the third choice after the first choice
Accuracy = Sequence[Sequence[float]]  # [depth][rank]: share of positions where this rank held the text's token
Ranks = Sequence[Sequence[int]]  # [position][depth]: rank of the text's token, -1 where the draft cannot name it

WIDTH = 64  # ranks that a table tells apart
DENSE = (16, 64, 256)  # budgets of the product trees that a search is compared with


@dataclass(frozen=True)
class RankTable:
    """How often the draft's rank r at depth d + 1 was the text's token: `counts[d][r]` of `positions`."""

    positions: int
    counts: tuple[tuple[int, ...], ...]

    @property
    def accuracy(self) -> tuple[tuple[float, ...], ...]:
        """Shares `[depth][rank]`; a depth sums to at most 1, the rest are ranks beyond the table."""
        return tuple(tuple(count / max(1, self.positions) for count in row) for row in self.counts)


@dataclass(frozen=True)
class Length:
    """Tokens and rounds of a walk along known text."""

    tokens: int
    rounds: int

    @property
    def mean(self) -> float:
        """Tokens per round (tau), the bonus token included."""
        return self.tokens / max(1, self.rounds)


@dataclass(frozen=True)
class Measured:
    """One tree on the measuring text, in tokens per round; `nodes` counts the root.

    expected  as if depths were independent and a round could begin anywhere
    anywhere  depths as they are, a round may still begin anywhere: what is left of independence
    measured  walked along the text, each round where the one before it ended
    """

    name: str
    nodes: int
    depth: int
    expected: float
    anywhere: float
    measured: float
    rounds: int


@dataclass(frozen=True)
class Search:
    """A grown tree with what it was grown from; `compared` begins with the tree itself."""

    paths: tuple[RankPath, ...]
    table: RankTable
    compared: tuple[Measured, ...]


def count_ranks(texts: Sequence[Ranks], width: int = WIDTH) -> RankTable:
    """Returns the table over the positions at which every depth was looked at."""
    whole = _whole(texts)
    counts = [Counter(column) for column in zip(*whole, strict=True)]
    return RankTable(len(whole), tuple(tuple(count[rank] for rank in range(width)) for count in counts))


def expected_length(paths: Sequence[RankPath], accuracy: Accuracy) -> float:
    """Returns the tokens per round that a tree would give if whether a depth hits did not depend on the depths before it.

    A node adds the probability that the text follows its whole path: the product of its accuracies. `paths` lists every node.
    """
    return 1.0 + sum(_probability(path, accuracy) for path in paths)


def _probability(path: RankPath, accuracy: Accuracy) -> float:
    return prod(accuracy[level][rank] if level < len(accuracy) and rank < len(accuracy[level]) else 0.0 for level, rank in enumerate(path))


def measured_length(paths: Sequence[RankPath], texts: Sequence[Ranks]) -> Length:
    """Walks along the texts as decoding at temperature 0 does with this tree, each text from its first position to its end.

    Needs no draft: after a path that the text took, q is what it was when the ranks were noted, whatever else the tree holds.
    """
    tree, rounds = set(paths), 0
    for ranks in texts:
        place = 0
        while place < len(ranks):
            place, rounds = place + _accepted(tree, ranks[place]) + 1, rounds + 1
    return Length(sum(map(len, texts)), rounds)  # every position is emitted once, by some round


def anywhere_length(paths: Sequence[RankPath], texts: Sequence[Ranks]) -> float:
    """Returns the mean tokens of a round that begins at any position, over the positions that `count_ranks` counts."""
    tree, whole = set(paths), _whole(texts)
    return 1.0 + sum(_accepted(tree, found) for found in whole) / max(1, len(whole))


def _accepted(tree: Set[RankPath], found: Sequence[int]) -> int:
    """Returns how deep the tree holds the path that the text takes."""
    path, depth = tuple(found), 0
    while depth < len(path) and path[: depth + 1] in tree:
        depth += 1
    return depth


def _whole(texts: Sequence[Ranks]) -> list[Sequence[int]]:
    """Returns the positions at which every depth was looked at: near the end of a text there are fewer."""
    depth = max((len(found) for ranks in texts for found in ranks), default=0)
    return [found for ranks in texts for found in ranks if len(found) == depth]


def grow_tree(accuracy: Accuracy, nodes: int) -> tuple[RankPath, ...]:
    """Returns at most `nodes - 1` paths in the order in which they were added: the first n - 1 of them are the tree of n nodes.

    From the root on, the neighbour (the next sibling, or a first child) of the highest product of accuracies joins. Ranks that
    were never right are passed over, as such a node can only cost; so it ends early when there is no other.
    """
    open_paths: list[tuple[float, int, RankPath]] = []
    chosen: list[RankPath] = []

    def offer(parent: RankPath, rank: int) -> None:
        shares = accuracy[len(parent)] if len(parent) < len(accuracy) else ()
        following = next((place for place in range(rank, len(shares)) if shares[place] > 0.0), None)
        if following is not None:
            path = (*parent, following)
            heapq.heappush(open_paths, (-_probability(path, accuracy), len(path), path))  # ties: the shallower, then the better rank

    offer((), 0)
    while open_paths and len(chosen) < nodes - 1:
        path = heapq.heappop(open_paths)[-1]
        chosen.append(path)
        offer(path[:-1], path[-1] + 1)
        offer(path, 0)
    return tuple(chosen)


def product_paths(widths: Sequence[int]) -> tuple[RankPath, ...]:
    """Returns every node of the dense tree in which each node of depth d has `widths[d]` children."""
    return tuple(path for depth in range(1, len(widths) + 1) for path in product(*map(range, widths[:depth])))


def best_widths(accuracy: Accuracy, nodes: int) -> tuple[int, ...]:
    """Returns the widths of the dense tree of at most `nodes` nodes that has the greatest expected length: the fair rival of a sparse one.

    Below each of w children stands the same smaller dense tree, so the best one for `room` nodes follows from those for room // w - 1.
    """
    tops = [tuple(accumulate(row)) for row in accuracy]

    @cache
    def best(level: int, room: int) -> tuple[float, tuple[int, ...]]:
        found: tuple[float, tuple[int, ...]] = (0.0, ())
        if level < len(tops):
            for width in range(1, min(room, len(tops[level])) + 1):
                below = best(level + 1, room // width - 1)
                value = tops[level][width - 1] * (1.0 + below[0])
                if value > found[0]:
                    found = (value, (width, *below[1]))
        return found

    return best(0, nodes - 1)[1]


def search(texts: Sequence[Ranks], nodes: int, name: str, rivals: Mapping[str, Sequence[RankPath]]) -> Search:
    """Grows the tree of `nodes` nodes on every other text and measures it, dense trees and the `rivals` on the rest.

    A tree measured on the text that it was grown on would flatter itself. `expected` uses the measuring text's own table, so
    that it differs from `measured` by what it assumes, not by the text.
    """
    table, rest = count_ranks(texts[0::2]), texts[1::2]
    accuracy, paths = table.accuracy, grow_tree(table.accuracy, nodes)
    dense = {"-".join(map(str, widths)): product_paths(widths) for widths in (best_widths(accuracy, size) for size in DENSE)}
    trees = {name: paths, **{f"dense {widths}": tree for widths, tree in dense.items()}, **rivals}
    here = count_ranks(rest).accuracy
    return Search(paths, table, tuple(_measure(label, tree, here, rest) for label, tree in trees.items()))


def _measure(name: str, paths: Sequence[RankPath], accuracy: Accuracy, texts: Sequence[Ranks]) -> Measured:
    walked = measured_length(paths, texts)
    depth = max(map(len, paths), default=0)
    return Measured(name, len(paths) + 1, depth, expected_length(paths, accuracy), anywhere_length(paths, texts), walked.mean, walked.rounds)
