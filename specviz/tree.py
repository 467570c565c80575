"""The candidate tree: what a drafter proposes, a target verifies and a rule judges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specviz.errors import BadInput

if TYPE_CHECKING:
    import networkx
    import torch


@dataclass(frozen=True)
class Draw:
    """How sampled children of one parent came about: which nodes, in order, from which draft distribution.

    `q` is the WARPED draft distribution that they were sampled from, [vocab] over the target's vocabulary, float64.
    `replace` is False when each child was drawn from q without its earlier siblings (EAGLE-1).
    """

    parent: int
    children: tuple[int, ...]
    q: torch.Tensor
    replace: bool = False


@dataclass(frozen=True)
class Pruned:
    """A candidate that was drafted but cut before verification; `parent` is a node of the verified tree, or -1 if that was cut too."""

    token: int
    parent: int
    score: float


@dataclass(frozen=True)
class Top:
    """The draft's most likely tokens at one node: `tokens` with their unwarped probability `q`."""

    node: int
    tokens: tuple[int, ...]
    q: tuple[float, ...]


@dataclass(frozen=True)
class TokenTree:
    """Candidate tokens as a tree; node 0 is the last committed token, and every parent precedes its children.

    `scores` is the draft confidence per node in its parent's context (probability, from the draft's UNWARPED softmax).
    `draws` lists the groups of sampled children; a node in no draw is deterministic (its draft proposed it with certainty).
    `candidate[i]` False marks a passenger: computed in the same forward, never accepted.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    scores: tuple[float, ...] | None = None
    draws: tuple[Draw, ...] = ()
    candidate: tuple[bool, ...] | None = None
    pruned: tuple[Pruned, ...] = ()
    source: tuple[str, ...] | None = None
    tops: tuple[Top, ...] = ()
    note: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.parents):
            raise BadInput(f"A tree needs as many parents as tokens and at least a root, got {len(self.tokens)} and {len(self.parents)}.")
        if self.parents[0] != -1 or any(not 0 <= p < i for i, p in enumerate(self.parents) if i):
            raise BadInput(f"Parents must be -1 for node 0 and precede their children, got {self.parents}.")
        for name in ("scores", "candidate", "source"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.tokens):
                raise BadInput(f"Tree column {name!r} has {len(column)} entries for {len(self.tokens)} nodes.")
        self._check_draws()

    def _check_draws(self) -> None:
        """A group that a rule would misread changes the output's distribution without a trace, so it is refused here."""
        if len({draw.parent for draw in self.draws}) < len(self.draws):
            raise BadInput("A parent has more than one group of sampled children; expected one Draw per parent.")
        for draw in self.draws:
            for child in draw.children:
                if not 0 < child < len(self.tokens) or self.parents[child] != draw.parent:
                    raise BadInput(f"Node {child} was drawn below node {draw.parent}, but is not a child of it.")
            if list(draw.children) != sorted(set(draw.children)):
                raise BadInput(f"Children {draw.children} of node {draw.parent} must be listed in the order of drawing, which is the order of their nodes.")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root."""
        depths = [0] * len(self.tokens)
        for node in range(1, len(self.tokens)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node in draft order, passengers left out."""
        lists: list[list[int]] = [[] for _ in self.tokens]
        for node in range(1, len(self.tokens)):
            if self.candidate is None or self.candidate[node]:
                lists[self.parents[node]].append(node)
        return tuple(tuple(kids) for kids in lists)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Place of each node among its siblings, 0 first (the root: 0)."""
        ranks = [0] * len(self.tokens)
        for kids in self.children:
            for rank, node in enumerate(kids):
                ranks[node] = rank
        return tuple(ranks)

    def path_to(self, node: int) -> tuple[int, ...]:
        """Returns the nodes from below the root down to `node`."""
        path = []
        while node > 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))


def chain(root: int, tokens: Sequence[int], scores: Sequence[float] | None = None, **extra: Any) -> TokenTree:
    """Returns the tree that is one path: `root`, then `tokens` in order."""
    size = len(tokens) + 1
    confidence = None if scores is None else (1.0, *scores)
    return TokenTree((root, *tokens), tuple(range(-1, size - 1)), confidence, **extra)


def from_paths(paths: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns (parents, ranks) of the tree made of rank paths such as (0,), (0, 1); missing ancestors are added.

    Nodes are ordered by depth, then by path, so that parents precede children.
    """
    closed = {()} | {tuple(path[:n]) for path in paths for n in range(1, len(path) + 1)}
    order = sorted(closed, key=lambda path: (len(path), path))
    index = {path: node for node, path in enumerate(order)}
    parents = tuple(index[path[:-1]] if path else -1 for path in order)
    return parents, tuple(path[-1] if path else 0 for path in order)


def ancestor_mask(parents: Sequence[int], size: int | None = None) -> list[list[bool]]:
    """Returns mask[i][j], True where node j is node i or one of its ancestors; rows beyond the tree attend to themselves."""
    width = size or len(parents)
    rows: list[list[bool]] = []
    for node in range(width):
        parent = parents[node] if node < len(parents) else -1
        row = list(rows[parent]) if parent >= 0 else [False] * width
        row[node] = True
        rows.append(row)
    return rows


def to_networkx(tree: TokenTree) -> networkx.DiGraph:
    """Returns the tree as a DiGraph with `token` and `score` on each node (an arborescence; `node_link_data` exports it)."""
    import networkx

    graph = networkx.DiGraph()
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        graph.add_node(node, token=token, score=None if tree.scores is None else tree.scores[node])
        if parent >= 0:
            graph.add_edge(parent, node)
    return graph


def from_networkx(graph: networkx.DiGraph) -> TokenTree:
    """Returns the tree held by an arborescence whose nodes carry `token`; nodes are renumbered parents first."""
    import networkx

    if not networkx.is_arborescence(graph):
        raise BadInput("The graph is not a tree with one root (networkx.is_arborescence is False).")
    order = list(networkx.topological_sort(graph))
    index = {name: node for node, name in enumerate(order)}
    parents = tuple(next((index[p] for p in graph.predecessors(name)), -1) for name in order)
    scores = [graph.nodes[name].get("score") for name in order]
    return TokenTree(tuple(graph.nodes[n]["token"] for n in order), parents, None if None in scores else tuple(scores))
