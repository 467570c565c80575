"""Graphs: a target verifies trees by replaying one captured forward per envelope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from specviz.cache import TreeCache
from specviz.errors import NotCaptured
from specviz.graphs.capture import Replay, capture
from specviz.graphs.lease import Envelope, Lease, Leases, nodes_for, slots_for, view_for
from specviz.graphs.tree_mask import layout
from specviz.staging import send, stage
from specviz.tree import TokenTree

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, TreeCache, Sequence[int]], Any]  # (ids, positions, mask, cache, taps) -> logits, hidden


@dataclass(frozen=True)
class Seen:
    """What a replay gave for the rows that were asked for: logits [rows, nodes, vocab] and {tap: [rows, nodes, H]}.

    Parts of a graph's own outputs where all rows took part: they hold until the next forward on the same cache.
    """

    logits: torch.Tensor
    hidden: dict[int, torch.Tensor]


class Graphs:
    """Verification by replay for one target. Every graph belongs to a lease, and a lease to one run at a time.

    Off until `on` is set. On a CPU nothing is captured: the same function runs over the same fixed tensors, which shows what a
    GPU would compute. When a forward cannot be captured, `tell` hears the reason and the ordinary path does all later ones.
    """

    def __init__(self, forward: Forward, layers: int, like: torch.Tensor, fold: int, tell: Callable[[str], None]) -> None:
        self.device, self.dtype = like.device, like.dtype
        self._forward, self._layers, self._fold, self.tell = forward, layers, fold, tell
        self._leases: Leases[Lease] = Leases()
        self.on, self.drafting = False, True  # drafting: heads may draft by replay too, where graphs are on
        self._stream: Any = None

    @property
    def mode(self) -> str:
        """How trees are verified: cuda (captured graphs), static (their shapes without a graph) or off."""
        return "off" if not self.on else "cuda" if self.device.type == "cuda" else "static"

    def give_up(self, reason: str) -> None:
        """Leaves every forward to the ordinary path from now on, and says why."""
        self.on = False
        self.tell(f"CUDA graphs are off: {reason}. Decoding is slower and gives the same text.")

    def new_cache(self, rows: int, capacity: int) -> TreeCache:
        """Returns a cache of the caller's own."""
        return TreeCache(self._layers, rows, capacity, Lease(self._layers, rows, slots_for(capacity), self.device) if self.on else None)

    @contextmanager
    def lend(self, rows: int, capacity: int) -> Iterator[TreeCache]:
        """Lends a cache for one run; its buffer and what was captured on it go to the next run that they fit."""
        slots = slots_for(capacity)
        lease = (self._leases.take(rows, slots) or Lease(self._layers, rows, slots, self.device)) if self.on else None
        try:
            yield TreeCache(self._layers, rows, capacity, lease)
        finally:
            if lease is not None and self.on:
                self._leases.give_back(lease)

    def ready(self, trees: Sequence[TokenTree], cache: TreeCache, rows: Sequence[int], taps: Sequence[int]) -> bool:
        """False when a graph would have to be captured for this forward first; `capture` does that ahead, so that it is no decoding time."""
        envelope = self._envelope(trees, cache, rows, taps) if self.on else None
        return envelope is None or cache.lease is None or envelope in cache.lease.graphs

    def capture(self, trees: Sequence[TokenTree], cache: TreeCache, rows: Sequence[int], taps: Sequence[int]) -> Replay | None:
        """Returns the graph for this forward, captured if need be; None when the ordinary path has to do it."""
        envelope, lease = self._envelope(trees, cache, rows, taps), cache.lease
        if envelope is None or lease is None:
            return None
        try:
            return lease.graph(envelope, lambda: self._make(lease, envelope, self._pack(trees, cache, rows, envelope.nodes)))
        except NotCaptured as problem:
            self.give_up(str(problem))
            return None

    def verify(self, trees: Sequence[TokenTree], cache: TreeCache, rows: Sequence[int], taps: Sequence[int]) -> Seen | None:
        """Verifies one tree per row; None when the ordinary path has to do it. Raises CacheFull before anything runs."""
        width = max(len(tree) for tree in trees)
        cache.require(rows, width)
        replay = self.capture(trees, cache, rows, taps)
        if replay is None:
            return None
        nodes = replay.inputs["packed"].shape[1] // 2
        replay.fill(packed=self._pack(trees, cache, rows, nodes))
        logits, hidden = replay.run()
        if list(rows) != list(range(cache.rows_total)):
            index = send(list(rows), self.device)
            logits, hidden = logits.index_select(0, index), {tap: states.index_select(0, index) for tap, states in hidden.items()}
        return Seen(logits[:, :width], {tap: states[:, :width] for tap, states in hidden.items()})

    def _envelope(self, trees: Sequence[TokenTree], cache: TreeCache, rows: Sequence[int], taps: Sequence[int]) -> Envelope | None:
        """Returns the shape that this forward is padded to; None where it is no graph's: too large a tree, or a cache without a lease or a prompt."""
        nodes = nodes_for(max(len(tree) for tree in trees))
        if not self.on or nodes is None or cache.lease is None or cache.buffer is None:
            return None
        longest = max(cache.lengths[row] for row in rows)
        return Envelope(nodes, view_for(longest + nodes, cache.slots), tuple(taps))

    def _make(self, lease: Lease, envelope: Envelope, packed: torch.Tensor) -> Replay:
        if self.device.type == "cuda" and self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        nodes, view, taps, writer = envelope.nodes, envelope.view, envelope.taps, lease.writer

        def verify(packed: torch.Tensor) -> Any:
            tokens, parents, lengths = packed[:, :nodes], packed[:, nodes : 2 * nodes], packed[:, -1]
            where = layout(parents, lengths, view, self.dtype, self._fold)
            writer.aim(where.slots, view)
            output = self._forward(tokens, where.positions, where.mask, writer, taps)
            return output.logits, {tap: output.hidden[tap] for tap in taps}

        return capture(verify, {"packed": packed.to(self.device)}, pool=lease.pool, stream=self._stream)

    def _pack(self, trees: Sequence[TokenTree], cache: TreeCache, rows: Sequence[int], nodes: int) -> torch.Tensor:
        """Returns [all rows, 2 * nodes + 1]: tokens, parents, committed length. A row without a tree gets padding alone, behind its prefix."""
        given = dict(zip(rows, trees, strict=True))
        flat: list[list[int]] = []
        for row, length in enumerate(cache.lengths):
            tree = given.get(row)
            tokens, parents = (tree.tokens, tree.parents) if tree is not None else ((), ())
            padding = nodes - len(tokens)
            flat.append([*tokens, *[0] * padding, *parents, *[-1] * padding, length])
        return stage(flat, self.device)
