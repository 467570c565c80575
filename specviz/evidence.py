"""Evidence: what the target says at the nodes of one verified tree, computed on the device and handed out as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from specviz.largest import Best, largest, most_likely, own_columns, peaks_of
from specviz.sampling import Sampling, Uniform, temper, warp
from specviz.staging import fetch, send
from specviz.tree import TokenTree

RANKED = 16  # most likely tokens among which a drafted token's rank is looked up first
FLOOR = -1e30  # takes the place of -inf, as 0 * -inf would be NaN


@dataclass(frozen=True)
class Columns:
    """The target's numbers per node, for the trace: lists over nodes, None where nothing was computed.

    p (raw) and p_warped are the node's own token in its parent's distribution; target_rank its place there (0 = most likely);
    entropy (nats, raw) is of the distribution AT the node; tops {node: ((token, raw p), ...)} at every node that has children.
    """

    p: tuple[float | None, ...]
    p_warped: tuple[float | None, ...]
    target_rank: tuple[int | None, ...]
    entropy: tuple[float | None, ...]
    wanted: tuple[int | None, ...]
    tops: Mapping[int, tuple[tuple[int, float], ...]]


class Evidence:
    """The target's view of one tree: `logits` [nodes, vocab], the run's sampling and keyed uniforms, the root's position.

    Warped rows are computed when a rule asks for them and remembered, so that a round pays for the rows it visits.
    """

    def __init__(self, tree: TokenTree, logits: torch.Tensor, sampling: Sampling, uniform: Uniform, position: int) -> None:
        self.tree, self.sampling, self.uniform, self.position = tree, sampling, uniform, position
        self.logits = logits[: len(tree)]
        self._warped: dict[int, torch.Tensor] = {}

    @cached_property
    def argmax(self) -> tuple[int, ...]:
        """The target's most likely token at every node (lowest id on exact ties)."""
        return tuple(most_likely(self.logits, self._peaks).tolist())

    @cached_property
    def _peaks(self) -> torch.Tensor | None:
        return peaks_of(self.logits)

    def position_below(self, node: int) -> int:
        """Index in the text of a token that would follow `node`."""
        return self.position + self.tree.depths[node] + 1

    def warped(self, node: int) -> torch.Tensor:
        """The warped distribution [vocab] after `node`, float64."""
        if node not in self._warped:
            self.warm([node])
        return self._warped[node]

    def warm(self, nodes: Iterable[int]) -> None:
        """Computes the warped rows of several nodes at once."""
        missing = [node for node in nodes if node not in self._warped]
        if missing:
            self._warped |= dict(zip(missing, warp(self.logits[missing], self.sampling), strict=True))

    def choice(self, node: int) -> int:
        """The token that plain decoding with this seed would emit after `node`."""
        if self.sampling.greedy:
            return self.argmax[node]
        return self.uniform.draw(self.warped(node), self.position_below(node), "token")

    def probability(self, node: int, token: int) -> float:
        """The warped probability of `token` after `node`."""
        if self.sampling.greedy:
            return float(token == self.argmax[node])
        return float(self.warped(node)[token])

    def tempered(self, node: int) -> torch.Tensor:
        """softmax(logits / T) after `node`, [vocab] float64, without top-k and top-p (what the typical rule reads)."""
        return temper(self.logits[node], self.sampling.temperature).softmax(-1)

    def columns(self, also: Iterable[int] = (), top: int = 5) -> Columns:
        """Returns the trace's numbers for every node that has children, and for the nodes in `also` (the end of the path)."""
        also, size = tuple(also), len(self.tree)
        parents = sorted({*self.tree.parents[1:], *also} - {-1})
        row_of = {node: row for row, node in enumerate(parents)}
        raw = _rows(self.logits, parents).float()
        best = largest(raw, max(top, RANKED) if size > 1 else top, _rows(self._peaks, parents) if self.sampling.greedy and self._peaks is not None else None)
        logits = raw - best.values[:, :1]  # from 0 down
        p = logits.softmax(-1)
        best_p = p.gather(-1, best.indices)
        entropy = _entropies(p, logits, -best_p[:, 0].log())  # the largest logit is 0
        ids, values = best.indices.tolist(), best_p.tolist()
        tops = {node: tuple(zip(ids[row][:top], [round(v, 6) for v in values[row][:top]], strict=True)) for node, row in row_of.items()}
        at = tuple(entropy[row_of[node]] if node in row_of else None for node in range(size))
        known = row_of.keys() if self.sampling.greedy else {*self._warped, *also}  # above T = 0 a choice needs a warped row: those the rule visited
        wanted = tuple(self.choice(node) if node in known else None for node in range(size))
        if size == 1:
            return Columns((None,), (None,), (None,), at, wanted, tops)
        rows = [row_of[parent] for parent in self.tree.parents[1:]]
        own, rank = own_columns(rows, self.tree.tokens[1:], logits, p, Best(ids, values, best.values.tolist()))
        return Columns((None, *own), (None, *self._warped_column(parents, rows, logits)), (None, *rank), at, wanted, tops)

    def _warped_column(self, parents: list[int], rows: list[int], logits: torch.Tensor) -> list[float]:
        """Returns the warped p of every node but the root, each in its parent's distribution."""
        tokens = self.tree.tokens[1:]
        if self.sampling.greedy:
            return [float(token == self.argmax[parent]) for token, parent in zip(tokens, self.tree.parents[1:], strict=True)]
        if self.sampling.top_p >= 1.0 and not self.sampling.top_k:  # nothing is cut, so no whole row has to be warped
            temperature = max(self.sampling.temperature, 1e-30)  # a float32 that is smaller would be 0
            scaled = logits if temperature == 1.0 else logits / temperature
            return (scaled[rows, tokens] - scaled.logsumexp(-1)[rows]).exp().tolist()
        self.warm(parents)
        return torch.stack([self.warped(node) for node in parents])[rows, tokens].tolist()


def _entropies(p: torch.Tensor, logits: torch.Tensor, log_sum: torch.Tensor) -> list[float]:
    """Returns the entropy of each row from its distribution, its logits (largest 0) and the log of their summed exponentials."""
    found: list[float] = (log_sum - torch.linalg.vecdot(p, logits)).clamp_min_(0.0).tolist()
    if any(map(math.isnan, found)):  # tokens that are ruled out: 0 * -inf
        return (log_sum - torch.linalg.vecdot(p, logits.clamp_min(FLOOR))).clamp_min_(0.0).tolist()
    return found


def _rows(table: torch.Tensor, nodes: Sequence[int]) -> torch.Tensor:
    """Returns the rows of `nodes`, in order; rows that lie together are not copied."""
    first, last = (nodes[0], nodes[-1]) if nodes else (0, -1)
    if last - first + 1 == len(nodes):
        return table[first : last + 1]
    return table.index_select(0, torch.tensor(nodes, device=table.device))


class Gathered(Evidence):
    """Evidence of a device that runs ahead of the host: what rule and trace ask for is enqueued first and fetched in ONE transfer by `gather`.

    Above temperature 0 every node is warped and its choice drawn, as it is not known yet which ones a rule will visit. Groups of
    SAMPLED children and the typical rule read whole rows, and each number they look at is a transfer of its own.
    """

    def __init__(self, tree: TokenTree, logits: torch.Tensor, sampling: Sampling, uniform: Uniform, position: int) -> None:
        super().__init__(tree, logits, sampling, uniform, position)
        self.parts: dict[str, torch.Tensor] = {}  # enqueued: name -> [nodes] or [nodes, top]
        self.numbers: dict[str, list[float]] = {}  # fetched, flat
        self._visited: set[int] = set()
        self._nodes: torch.Tensor | None = None
        if sampling.greedy:
            self.parts["choice"] = self.logits.argmax(-1)
            return
        self._rows = warp(self.logits, sampling)
        below = {depth: uniform(position + depth + 1, "token") for depth in set(tree.depths)}
        self.parts["choice"] = draw_rows(self._rows, send([below[depth] for depth in tree.depths], logits.device, torch.float64))
        self.parts["p_warped"] = self._own(self._rows)

    def _own(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the number of each node's own token in its parent's row, [nodes]; the root's means nothing."""
        if self._nodes is None:
            self._nodes = send([[max(parent, 0) for parent in self.tree.parents], self.tree.tokens], self.logits.device)
        return rows[self._nodes[0], self._nodes[1]]

    def enqueue_columns(self, top: int) -> None:
        """Adds what `columns` needs to the transfer."""
        logits = self.logits.float()
        logits = (logits - logits.amax(-1, keepdim=True)).clamp_min_(-1e30)
        p, mine = logits.softmax(-1), self._own(logits)
        assert self._nodes is not None
        best = logits.topk(min(top, logits.shape[-1]), -1).indices
        best_p = p.gather(-1, best)
        entropy = (-best_p[:, 0].log() - torch.linalg.vecdot(p, logits)).clamp_min(0.0)
        rank = (logits[self._nodes[0]] > mine[:, None]).sum(-1)
        self.parts |= {"p": self._own(p), "rank": rank, "entropy": entropy, "best": best, "best_p": best_p}

    def take(self, numbers: Sequence[list[float]]) -> None:
        """Keeps what was fetched, in the order of `parts`."""
        self.numbers = dict(zip(self.parts, numbers, strict=True))
        self.choices = tuple(int(token) for token in self.numbers["choice"])
        if self.sampling.greedy:
            vars(self)["argmax"] = self.choices  # what the cached property would compute with a transfer of its own
        else:
            pairs = zip(self.tree.parents[1:], self.tree.tokens[1:], strict=True)
            self._known = dict(zip(pairs, self.numbers["p_warped"][1:], strict=True))

    def warped(self, node: int) -> torch.Tensor:
        if self.sampling.greedy:
            return super().warped(node)
        self._visited.add(node)
        return self._rows[node]

    def choice(self, node: int) -> int:
        self._visited.add(node)
        return self.choices[node]

    def probability(self, node: int, token: int) -> float:
        known = None if self.sampling.greedy else self._known.get((node, token))
        return super().probability(node, token) if known is None else known

    def columns(self, also: Iterable[int] = (), top: int = 5) -> Columns:
        also, size = tuple(also), len(self.tree)
        inner = {*self.tree.parents[1:], *also} - {-1}
        known = inner if self.sampling.greedy else self._visited | set(also)
        width = len(self.numbers["best"]) // size
        best, best_p = self.numbers["best"], self.numbers["best_p"]
        span = {node: slice(node * width, node * width + min(top, width)) for node in sorted(inner)}
        tops = {node: tuple((int(token), round(p, 6)) for token, p in zip(best[at], best_p[at], strict=True)) for node, at in span.items()}
        pairs = zip(self.tree.tokens[1:], self.tree.parents[1:], strict=True)
        warped = [float(token == self.argmax[parent]) for token, parent in pairs] if self.sampling.greedy else self.numbers["p_warped"][1:]
        return Columns(
            (None, *self.numbers["p"][1:]),
            (None, *warped),
            (None, *(int(place) for place in self.numbers["rank"][1:])),
            tuple(value if node in inner else None for node, value in enumerate(self.numbers["entropy"])),
            tuple(self.choices[node] if node in known else None for node in range(size)),
            tops,
        )


def gather(found: Sequence[Gathered]) -> None:
    """Fetches everything that the evidence of all rows has enqueued: the round's one wait for the device."""
    numbers = fetch([part for evidence in found for part in evidence.parts.values()])
    for evidence in found:
        evidence.take(numbers[: len(evidence.parts)])
        numbers = numbers[len(evidence.parts) :]


def draw_rows(p: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Returns the token that each of `uniforms` [rows] draws from its row of p [rows, vocab]: `sampling.draw` without looking at a number."""
    cumulative = p.cumsum(-1)
    drawn = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True).clamp_max_(p.shape[-1] - 1)
    last = (torch.arange(p.shape[-1], device=p.device) * (p > 0)).amax(-1, keepdim=True)  # rounding at the very end: the last token that has mass
    return torch.where(p.gather(-1, drawn) > 0, drawn, last)[:, 0]
