"""Replay: lets a drafter draft along text that the target has already written, without running the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specviz.analysis.acceptance import CalibrationBin, DepthAcceptance
from specviz.drafters.base import Drafter, Feedback
from specviz.sampling import Sampling, Uniform
from specviz.tree import TokenTree

BINS = 10  # of draft confidence


@dataclass(frozen=True)
class Confidence:
    """Candidates of one bin of draft confidence whose parent was accepted: how many, their summed q, and how many were accepted."""

    count: int = 0
    q: float = 0.0
    accepted: int = 0

    def __add__(self, other: Confidence) -> Confidence:
        return Confidence(self.count + other.count, self.q + other.q, self.accepted + other.accepted)


@dataclass(frozen=True)
class Replayed:
    """What a drafter reached on recorded greedy text; tau, depths and cut rounds as real decoding counts them.

    tokens      emitted by rounds: the first answer token is the prefill's and not among them
    by_depth    rounds, and per depth how many were tested and how many accepted
    confidence  bins of draft confidence over candidates whose parent was accepted
    nodes       of the largest tree, the root included
    """

    tokens: int = 0
    by_depth: DepthAcceptance = field(default_factory=DepthAcceptance)
    confidence: tuple[Confidence, ...] = (Confidence(),) * BINS
    nodes: int = 1

    @property
    def rounds(self) -> int:
        return self.by_depth.rounds

    @property
    def tau(self) -> float:
        """Mean tokens per round, the bonus token included; 0 without a round."""
        return self.tokens / max(1, self.rounds)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Acceptance per depth given that the parent was accepted, as far down as any round was tested."""
        return tuple(round(share, 4) for share in self.by_depth.conditional if share is not None)

    @property
    def calibration(self) -> tuple[CalibrationBin, ...]:
        """The filled bins of draft confidence against acceptance."""
        return tuple(
            CalibrationBin(place / BINS, (place + 1) / BINS, one.count, round(one.q / one.count, 4), None, round(one.accepted / one.count, 4))
            for place, one in enumerate(self.confidence)
            if one.count
        )

    def __add__(self, other: Replayed) -> Replayed:
        bins = tuple(a + b for a, b in zip(self.confidence, other.confidence, strict=True))
        return Replayed(self.tokens + other.tokens, self.by_depth + other.by_depth, bins, max(self.nodes, other.nodes))


def replay(drafter: Drafter, ids: Sequence[int], prompt: int, states: Mapping[int, torch.Tensor], limit: int | None = None) -> Replayed:
    """Lets the drafter draft along recorded greedy text `ids` with the target's recorded `states` `[len(ids), hidden]` per tap.

    `prompt` is the number of prompt tokens, `limit` the most new tokens the run might have written (None: as many as it did).
    Equals decoding that text at temperature 0 up to the rounding of the states: the same rounds, drafts cut at the same place.
    """
    limit = len(ids) - prompt if limit is None else limit
    root, known, total = prompt, 0, Replayed()
    path: tuple[int, ...] = ()
    flow = None
    while root + 1 < len(ids):
        hidden = {tap: rows[known:root] for tap, rows in states.items()}
        room = max(0, limit - (root + 1 - prompt) - 1)  # as Row.room of decode
        seen = [Feedback(0, ids[: root + 1], path, hidden, None, Sampling(), Uniform(0), room)]
        if flow is None:
            flow = drafter.draft(seen)
            (tree,) = next(flow)
        else:
            (tree,) = flow.send(seen)
        path = follow(tree, ids, root)
        total += _judge(tree, path, ids, root)
        known, root = root, min(root + len(path) + 1, len(ids))
    if flow is not None:
        flow.close()
    return total


def follow(tree: TokenTree, ids: Sequence[int], root: int) -> tuple[int, ...]:
    """Returns the path of `tree` that the text takes after its root, which is `ids[root]`; it ends where the text ends."""
    node, path = 0, list[int]()
    for token in ids[root + 1 :]:
        following = next((child for child in tree.children[node] if tree.tokens[child] == token), None)
        if following is None:
            break
        node = following
        path.append(node)
    return tuple(path)


def _judge(tree: TokenTree, path: tuple[int, ...], ids: Sequence[int], root: int) -> Replayed:
    """Counts one round. A path that ends with the text was cut: it has no bonus token, and is not tested below its end."""
    depth, last = len(path), path[-1] if path else 0
    cut = root + depth + 1 == len(ids)
    tested = depth + (not cut and bool(tree.children[last]))
    judged = (0, *path)[: depth + 1 - cut]
    bins = [Confidence()] * BINS
    for child in (child for node in judged for child in tree.children[node]):
        q = None if tree.scores is None else tree.scores[child]
        if q is not None and 0.0 <= q <= 1.0:
            bins[min(BINS - 1, int(q * BINS))] += Confidence(1, q, child in path)
    counts = DepthAcceptance(1, (1,) * tested, (1,) * depth + (0,) * (tested - depth))
    return Replayed(depth + (not cut), counts, tuple(bins), len(tree))
