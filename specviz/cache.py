"""TreeCache: one preallocated key/value buffer that stock attention writes to, and commits that move accepted rows only.

A forward writes its nodes behind the committed prefix; `commit` moves the accepted path to the front of them; not
committing is the rollback. Slots beyond the committed length are scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from specviz.errors import CacheFull
from specviz.staging import send

if TYPE_CHECKING:
    from specviz.graphs.lease import Lease


class TreeLayer(CacheLayerMixin):
    """One decoder layer's view of the shared buffer; the owner says which rows and slots the current forward uses."""

    is_compileable, is_croppable, is_sliding = True, False, False

    def __init__(self, owner: TreeCache, index: int) -> None:
        super().__init__()
        self.owner, self.index = owner, index

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.owner.allocate(key_states)
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the new nodes at the owner's slots; returns keys and values of the rows in use, up to the view."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self.owner.write(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.view, 0

    def get_seq_length(self) -> int:
        return self.owner.base

    def get_max_length(self) -> int:
        return self.owner.capacity

    get_max_cache_shape = get_max_length


class TreeCache(Cache):
    """Keys and values of `batch` rows, [layers, 2, batch, kv_heads, slots, head_dim], with a committed length per row.

    `slots` is the capacity, or more where the buffer is a lease's, to which captured forwards write.
    """

    def __init__(self, layers: int, batch: int, capacity: int, lease: Lease | None = None) -> None:
        super().__init__(layers=[TreeLayer(self, index) for index in range(layers)])
        self.depth, self.rows_total, self.capacity = layers, batch, capacity
        self.lease, self.slots = lease, capacity if lease is None else lease.slots
        self.lengths = [0] * batch  # committed tokens per row, on the host
        self.buffer: torch.Tensor | None = None
        self.rows: Sequence[int] = range(batch)
        self.view, self.base = capacity, 0
        self._slots: torch.Tensor | slice = slice(0, 0)
        self._index: torch.Tensor | None = None
        self._aimed = False

    def allocate(self, like: torch.Tensor) -> None:
        """Leases the buffer on the first write; zeros, because a masked NaN would still poison attention."""
        if self.buffer is None:
            shape = (self.depth, 2, self.rows_total, like.shape[1], self.slots, like.shape[3])
            self.buffer = torch.zeros(shape, dtype=like.dtype, device=like.device) if self.lease is None else self.lease.allocate(shape, like)

    def require(self, rows: Sequence[int], nodes: int) -> int:
        """Returns the committed length of the longest of `rows`; raises CacheFull unless `nodes` more fit behind it."""
        longest = max(self.lengths[row] for row in rows)
        if longest + nodes > self.capacity:
            raise CacheFull(f"{longest} committed tokens + {nodes} new nodes do not fit a cache of {self.capacity}. Lower max_new_tokens or the tree's nodes.")
        return longest

    def begin(self, rows: Sequence[int], nodes: int, device: torch.device) -> None:
        """Announces a forward of `nodes` new nodes in `rows`. Raises CacheFull before anything is written."""
        longest = self.require(rows, nodes)
        self.rows, self.view, self.base = rows, longest + nodes, longest
        if len(rows) == 1:
            self._slots, self._index = slice(longest, longest + nodes), None
            return
        starts = torch.tensor([self.lengths[row] for row in rows], device=device)
        self._slots = starts[:, None] + torch.arange(nodes, device=device)
        self._index = torch.tensor(list(rows), device=device)

    def aim(self, slots: torch.Tensor, view: int) -> None:
        """Lets all later forwards write every row at `slots` [batch, nodes]: a tensor, so a captured write goes where its contents say."""
        self._index, self._slots, self.view, self._aimed = slots, slots, view, True

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.buffer is not None
        pair = self.buffer[layer]
        if self._index is None:  # one row: plain slices, no copy
            row = self.rows[0]
            pair[0, row, :, self._slots] = keys[0]
            pair[1, row, :, self._slots] = values[0]
            seen = pair[:, row : row + 1, :, : self.view]
        elif self._aimed:
            at = self._slots[:, None, :, None].expand_as(keys)  # type: ignore[index]
            pair[0].scatter_(2, at, keys)
            pair[1].scatter_(2, at, values)
            seen = pair[:, :, :, : self.view]
        else:
            index = self._index[:, None]
            pair[0, index, :, self._slots] = keys.transpose(1, 2)
            pair[1, index, :, self._slots] = values.transpose(1, 2)
            everything = list(self.rows) == list(range(self.rows_total))
            seen = pair[:, :, :, : self.view] if everything else pair[:, self._index, :, : self.view]
        return seen[0], seen[1]

    @torch.inference_mode()
    def commit(self, row: int, path: Sequence[int]) -> None:
        """Keeps the nodes `path` (root first, ascending) of the last forward in `row`; moves only rows that are out of place."""
        start = self.lengths[row]
        source = [node for place, node in enumerate(path) if node != place]
        if source and self.buffer is not None:
            first = len(path) - len(source)  # an ascending path is in place up to its first gap, and nowhere after it
            mine = self.buffer[:, :, row]
            mine[:, :, :, start + first : start + len(path)] = mine.index_select(3, send([start + node for node in source], mine.device))
        self.lengths[row] = start + len(path)

    def rollback(self, row: int, length: int) -> None:
        """Forgets all committed tokens of `row` from `length` on."""
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"cannot roll back to {length}: row {row} holds {self.lengths[row]} committed tokens")
        self.lengths[row] = length

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.base

    @property
    def nbytes(self) -> int:
        """Bytes leased, all layers."""
        return 0 if self.buffer is None else self.buffer.numel() * self.buffer.element_size()
