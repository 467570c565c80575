"""A whole draft on the device: the tree that `dynamic` grows, level by level over fixed shapes, read back in one transfer.

`dynamic` on the host asks for one draft step, reads its choices, decides, and asks for the next. Here the decisions are made
where the numbers are, by the same rule on the same float64 sums with ties to the earlier node, so the same tree comes back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from specviz.tree import Pruned, TokenTree, Top

MOST_EXPANDED = 352  # nodes below the root that the largest knobs of `dynamic` expand: 11 levels of 32
NOWHERE = -math.inf  # the total of what was not drafted


@dataclass(frozen=True)
class Form:
    """What decides every shape of a draft: the knobs of `dynamic`, how many tokens the draft knows, how many choices a record keeps per node."""

    depth: int
    top_k: int
    nodes: int
    show_pruned: int
    vocabulary: int
    top: int

    @property
    def children(self) -> int:
        """Children of every expanded node."""
        return min(self.top_k, self.vocabulary)

    @property
    def listed(self) -> int:
        """Choices read per expanded node, best first: its children and those that are only shown."""
        return min(max(self.top_k, self.top), self.vocabulary)

    @cached_property
    def frontiers(self) -> tuple[int, ...]:
        """How many nodes every draft step takes in: the root, then the best of the level before."""
        counts = [1]
        while len(counts) < self.depth:
            counts.append(min(self.top_k, counts[-1] * self.children))
        return tuple(counts)

    @property
    def fits(self) -> bool:
        """False for a tree beyond what the knobs of `dynamic` allow, for which there is no room."""
        return sum(self.frontiers[1:]) <= MOST_EXPANDED

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """How many nodes below the root were expanded before each step."""
        return tuple(sum(self.frontiers[1:level]) for level in range(self.depth))

    @property
    def candidates(self) -> int:
        """Nodes of everything that is drafted, the root included; node 0 is the root, then come the children step by step."""
        return 1 + sum(self.frontiers) * self.children

    @property
    def kept(self) -> int:
        """Candidates that are read back, best first: the tree and the cut ones that are shown."""
        return min(self.nodes + self.show_pruned, self.candidates)


@dataclass(frozen=True)
class Drafted:
    """What one draft step gave: log q `[nodes, draft vocabulary]` (one row where all nodes share it), and what the next step goes on from."""

    log_q: torch.Tensor
    carry: Any


class Steps(ABC):
    """The draft steps of one head over tensors that never move; `inputs` are `numbers` (int64) and `states` (of the target).

    `numbers[0]` is how many levels may be drafted, the rest is the head's own. Nothing here may ask the host for a value, and
    running twice on the same inputs must give the same.
    """

    slots = 0  # committed tokens that there is room for; 0 for a head that remembers none

    def __init__(self, vocabulary: torch.Tensor, numbers: int, states: torch.Tensor) -> None:
        """`vocabulary` `[draft vocabulary]` are the target's ids; `states` zeros of the shape and dtype in which the target's come in."""
        self.vocabulary = vocabulary
        self.inputs = {"numbers": torch.zeros(numbers, dtype=torch.int64, device=states.device), "states": states}

    def reset(self) -> None:
        """Forgets the run before: inputs become harmless ones, and what is remembered zeros."""
        for tensor in self.inputs.values():
            tensor.zero_()

    @abstractmethod
    def first(self, form: Form, view: int, numbers: torch.Tensor, states: torch.Tensor) -> Drafted:
        """Takes in what was committed and drafts after the root; attention looks at the first `view` committed slots."""

    @abstractmethod
    def step(self, form: Form, level: int, tokens: torch.Tensor, parents: torch.Tensor, carry: Any) -> Drafted:
        """Drafts after the nodes of a level: `tokens` `[nodes]` below the nodes number `parents` `[nodes]` of the step before."""


def grow(form: Form, steps: Steps, view: int, numbers: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Returns one draft as float64 numbers, for `read`; see `dynamic` for the rule (EAGLE-2, section 4).

    In order: the best candidates, their cumulative log q, which candidate every step expanded (-1: none), then token and log q
    of every choice. A node that can no longer enter the tree is computed with the others, but not expanded: it gets no children.
    """
    device, k = numbers.device, form.children
    totals = torch.full((form.candidates,), NOWHERE, dtype=torch.float64, device=device)  # cumulative log q of every candidate
    totals[:1].zero_()
    total = torch.zeros(1, dtype=torch.float64, device=device).masked_fill_(numbers[:1] < 1, NOWHERE)
    nodes, at = torch.zeros(1, dtype=torch.int64, device=device), 1
    entering = (torch.arange(form.depth, device=device) < numbers[:1]) * form.nodes  # fewer than so many may be as good as an expanded node
    drafted = steps.first(form, view, numbers, states)
    expanded, choices, logs = [], [], []
    for level, count in enumerate(form.frontiers):
        values, columns = drafted.log_q.topk(form.listed, -1)
        values, tokens = values.expand(count, -1), steps.vocabulary.index_select(0, columns.flatten()).view(columns.shape).expand(count, -1)
        expanded.append(nodes.masked_fill(total == NOWHERE, -1))
        choices.append(tokens)
        logs.append(values)
        kids = (total[:, None] + values[:, :k]).flatten()
        totals[at : at + count * k].copy_(kids)
        if level + 1 < form.depth:
            following = form.frontiers[level + 1]
            ordered = kids.sort(descending=True, stable=True)
            total, picks = ordered.values[:following], ordered.indices[:following]
            as_good = (totals >= total[:, None]).sum(-1)
            total = total.masked_fill(as_good >= entering[level + 1], NOWHERE)
            nodes = picks + at
            drafted = steps.step(form, level + 1, tokens[:, :k].flatten().index_select(0, picks), picks // k, drafted.carry)
        at += count * k
    best = totals.sort(descending=True, stable=True)
    parts = (best.indices[: form.kept], best.values[: form.kept], torch.cat(expanded), torch.cat(choices).flatten(), torch.cat(logs).flatten())
    return torch.cat([part.double() for part in parts])


def read(form: Form, numbers: Sequence[float], root: int) -> TokenTree:
    """Returns the tree of a draft that `grow` made below the token `root`: what `dynamic` would have returned, its record included."""
    order, totals, expanded, tokens, logs = _split(numbers, (form.kept, form.kept, *_steps_of(form)))
    real = [(int(node), total) for node, total in zip(order, totals, strict=True) if total > NOWHERE]
    kept = sorted(node for node, _ in real[: form.nodes])
    place = {node: new for new, node in enumerate(kept)}
    sources = [int(node) for node in expanded]
    drafted = form.children * sum(node >= 0 for node in sources)

    def parent(node: int) -> int:
        return place.get(sources[(node - 1) // form.children], -1)

    def choice(node: int) -> int:
        row, rank = divmod(node - 1, form.children)
        return row * form.listed + rank

    def top(row: int) -> slice:
        return slice(row * form.listed, row * form.listed + min(form.top, form.listed))

    below = kept[1:]
    return TokenTree(
        (root, *(int(tokens[choice(node)]) for node in below)),
        (-1, *(parent(node) for node in below)),
        (1.0, *(math.exp(logs[choice(node)]) for node in below)),
        pruned=tuple(Pruned(int(tokens[choice(node)]), parent(node), math.exp(total)) for node, total in real[form.nodes :]),
        tops=tuple(
            Top(place[node], tuple(map(int, tokens[top(row)])), tuple(map(math.exp, logs[top(row)]))) for row, node in enumerate(sources) if node in place
        ),
        note=(("drafted", drafted), ("pruned", drafted + 1 - len(kept))),
    )


def _steps_of(form: Form) -> tuple[int, int, int]:
    rows = sum(form.frontiers)
    return rows, rows * form.listed, rows * form.listed


def _split(numbers: Sequence[float], sizes: Sequence[int]) -> list[Sequence[float]]:
    found, start = [], 0
    for size in sizes:
        found.append(numbers[start : start + size])
        start += size
    return found
