"""Growth: one round's draft in progress. A drafter supplies the step, a shape decides which nodes get children."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specviz.errors import BadInput
from specviz.sampling import Sampling, Uniform, warp
from specviz.tree import Draw, Pruned, TokenTree, Top

if TYPE_CHECKING:
    import torch

Step = Callable[["Growth", Sequence[int]], "torch.Tensor"]  # (growth, nodes) -> log q [len(nodes), draft vocabulary]
TOP = 5  # the draft's best tokens that a record keeps per expanded node
MAX_NODES = 256  # a tree beyond this is refused before it is verified


@dataclass(frozen=True)
class Sampler:
    """How children are sampled from q: the run's sampling, its keyed uniforms, the root's position, the target's vocabulary size."""

    sampling: Sampling
    uniform: Uniform
    position: int
    vocab_size: int


class Growth:
    """Grows a candidate tree below `root`; shapes call `expand`, then `tree`.

    `step(growth, nodes)` gives the draft's UNWARPED log-softmax after each node; `vocabulary` maps its columns to target ids
    (None: they are target ids). `depth_limit` is the deepest level that can still be emitted or drafted.
    With a `sampler`, children are drawn without replacement from the warped q (EAGLE, section 4); without, they are its top k.
    """

    def __init__(
        self, root: int, step: Step, *, depth_limit: int, vocabulary: torch.Tensor | None = None, sampler: Sampler | None = None, top: int = TOP
    ) -> None:
        self._step, self._vocabulary, self._sampler, self._top = step, vocabulary, sampler, top
        self.depth_limit = depth_limit
        self.tokens: list[int] = [root]
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.scores: list[float] = [1.0]  # q of the node in its parent's context
        self.totals: list[float] = [0.0]  # cumulative log q
        self._draws: list[Draw] = []
        self._tops: list[Top] = []

    @property
    def sampled(self) -> bool:
        """True when children are drawn from q; a shape that selects among them afterwards would bias the output."""
        return self._sampler is not None

    def path_to(self, node: int) -> list[int]:
        """Returns the nodes from the root (included) down to `node`."""
        path = [node]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path[::-1]

    def expand(self, nodes: Sequence[int], k: int) -> list[list[int]]:
        """Adds up to `k` children to each of `nodes` and returns their ids; none beyond the depth limit."""
        if not nodes or k < 1 or self.depths[nodes[0]] >= self.depth_limit:
            return [[] for _ in nodes]
        if len(self.tokens) + len(nodes) * k > 64 * MAX_NODES:
            raise BadInput(f"This tree shape drafts more than {64 * MAX_NODES} candidates. Lower its widths or depth.")
        log_q = self._step(self, nodes)
        width = min(max(k, self._top), log_q.shape[-1])
        values, columns = log_q.topk(width, -1)
        ids = columns if self._vocabulary is None else self._vocabulary[columns]
        rows, confidences = ids.tolist(), values.tolist()
        for node, tokens, logs in zip(nodes, rows, confidences, strict=True):
            if self._top:
                self._tops.append(Top(node, tuple(tokens[: self._top]), tuple(math.exp(v) for v in logs[: self._top])))
        if self._sampler is not None:
            return [self._sample(node, log_q[i], k) for i, node in enumerate(nodes)]
        return [[self._add(node, t, v) for t, v in zip(tokens[:k], logs[:k], strict=True)] for node, tokens, logs in zip(nodes, rows, confidences, strict=True)]

    def follow(self, node: int, token: int) -> tuple[int, int | None]:
        """Adds `token` below `node`, however unlikely, and returns its node and its rank in q, 0 first (None: the draft cannot name it).

        For measurements that walk along known text; a shape that drafts does not know what comes next.
        """
        log_q = self._step(self, [node])[0]
        columns = [token] if self._vocabulary is None else (self._vocabulary == token).nonzero().flatten().tolist()
        if not columns:
            return self._add(node, token, -math.inf), None
        value = log_q[columns[0]]
        return self._add(node, token, float(value)), int((log_q > value).sum())

    def _add(self, parent: int, token: int, log_q: float) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.scores.append(math.exp(log_q))
        self.totals.append(self.totals[parent] + log_q)
        return len(self.tokens) - 1

    def _sample(self, node: int, log_q: torch.Tensor, k: int) -> list[int]:
        """Draws up to k distinct children from the warped q; fewer when q has fewer tokens with mass."""
        assert self._sampler is not None
        source = self._sampler
        q = warp(log_q[None], source.sampling)[0]
        left, kids = q.clone(), []
        for place in range(k):
            if not float(left.sum()) > 0.0:
                break
            column = source.uniform.draw(left, source.position + self.depths[node] + 1, "draft", node * MAX_NODES + place)
            left[column] = 0.0
            token = column if self._vocabulary is None else int(self._vocabulary[column])
            kids.append(self._add(node, token, float(log_q[column])))
        full = q.new_zeros(source.vocab_size)
        if self._vocabulary is None:
            full[: q.shape[0]] = q
        else:
            full[self._vocabulary] = q
        self._draws.append(Draw(node, tuple(kids), full))
        return kids

    def best(self, count: int) -> list[int]:
        """Returns the `count` nodes of highest cumulative score, root included, in the order they were drafted.

        Closed under ancestors: a child's score never exceeds its parent's, and exact ties go to the earlier node.
        """
        chosen = heapq.nsmallest(count, range(len(self.tokens)), key=lambda node: (-self.totals[node], node))
        return sorted(chosen)

    def tree(self, keep: Iterable[int] | None = None, show_pruned: int = 0) -> TokenTree:
        """Returns the TokenTree of all nodes, or of `keep` (closed under ancestors) with the best `show_pruned` of the rest listed."""
        kept = list(range(len(self.tokens))) if keep is None else sorted(keep)
        if len(kept) > MAX_NODES:
            raise BadInput(f"This tree has {len(kept)} nodes, more than {MAX_NODES}. Lower the shape's widths, depth or nodes.")
        place = {node: new for new, node in enumerate(kept)}
        cut = [node for node in range(len(self.tokens)) if node not in place]
        shown = heapq.nsmallest(show_pruned, cut, key=lambda node: (-self.totals[node], node))
        pruned = tuple(Pruned(self.tokens[n], place.get(self.parents[n], -1), math.exp(self.totals[n])) for n in shown)
        return TokenTree(
            tuple(self.tokens[node] for node in kept),
            tuple(place[self.parents[node]] if node else -1 for node in kept),
            tuple(self.scores[node] for node in kept),
            tuple(Draw(place[d.parent], tuple(place[c] for c in d.children), d.q, d.replace) for d in self._draws if d.parent in place),
            pruned=pruned,
            tops=tuple(Top(place[t.node], t.tokens, t.q) for t in self._tops if t.node in place),
            note=(("drafted", len(self.tokens) - 1), ("pruned", len(cut))),
        )


Shape = Callable[..., TokenTree]


def grow_paths(growth: Growth, paths: Sequence[tuple[int, ...]]) -> TokenTree:
    """Returns the static tree of rank paths: (0, 2) is the third choice after the first choice.

    With sampled children a node draws as many as it has listed, so nothing is selected after the draw.
    """
    wanted: dict[tuple[int, ...], list[int]] = {}
    for path in paths:
        wanted.setdefault(path[:-1], []).append(path[-1])
    level: dict[tuple[int, ...], int] = {(): 0}
    keep = [0]
    while level:
        open_nodes = [(path, node) for path, node in level.items() if path in wanted]
        level = {}
        for k, group in _by_width(open_nodes, wanted, growth.sampled):
            for (path, _), kids in zip(group, growth.expand([node for _, node in group], k), strict=True):
                ranks = range(len(kids)) if growth.sampled else [rank for rank in wanted[path] if rank < len(kids)]
                names = wanted[path] if growth.sampled else list(ranks)
                level |= {(*path, name): kids[rank] for name, rank in zip(names, ranks, strict=False)}
        keep += level.values()
    return growth.tree(keep)


def _by_width(
    open_nodes: list[tuple[tuple[int, ...], int]], wanted: dict[tuple[int, ...], list[int]], sampled: bool
) -> list[tuple[int, list[tuple[tuple[int, ...], int]]]]:
    """One draft step for the whole level when children are deterministic; grouped by how many to draw when they are sampled."""
    if not open_nodes:
        return []
    if not sampled:
        return [(1 + max(max(wanted[path]) for path, _ in open_nodes), open_nodes)]
    widths = sorted({len(wanted[path]) for path, _ in open_nodes})
    return [(width, [pair for pair in open_nodes if len(wanted[pair[0]]) == width]) for width in widths]
