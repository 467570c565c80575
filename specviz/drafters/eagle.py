from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from specviz.drafters.base import Feedback, RowFlow, per_row
from specviz.drafters.eagle_module import EagleLayer, EagleSizes
from specviz.drafters.heads import HeadDrafter, sampler_for
from specviz.shapes.base import Growth
from specviz.tree import TokenTree

ENTER_CHUNK = 512  # prompt rows per pass of the draft layer; bounds the memory of its attention scores


class Eagle(HeadDrafter):
    """Predicts the target's next hidden state with one small layer, token by token down the tree (EAGLE)."""

    method: ClassVar[str] = "eagle"
    module: EagleLayer

    def build(self, sizes: Mapping[str, Any]) -> EagleLayer:
        return EagleLayer(EagleSizes.from_json(sizes))

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree grown by draft steps; true features of the accepted tokens re-enter every round."""
        memory = DraftMemory(self.module, self.target.model.get_input_embeddings())
        while True:
            memory.enter(seen.tokens, seen.hidden[self.taps[0]])
            seen = yield self._grow(memory, seen)

    def _grow(self, memory: DraftMemory, seen: Feedback) -> TokenTree:
        def step(growth: Growth, nodes: Sequence[int]) -> Tensor:
            with torch.inference_mode():
                return self.rows.log_q(memory.step(growth, nodes))

        growth = Growth(
            seen.next_token, step, depth_limit=seen.room, vocabulary=self.rows.vocabulary, sampler=sampler_for(seen, self.children, self.target.vocab_size)
        )
        tree: TokenTree = self.shape(growth)
        return tree


class DraftMemory:
    """Keys and values of the draft layer for one row: those of true features stay, those of the tree go after the round.

    Slot i < `length` holds the row of token i (embedding of token i+1, feature of token i); later slots hold drafted nodes.
    """

    def __init__(self, layer: EagleLayer, embed: Any) -> None:
        self.layer, self.embed = layer, embed
        self.length = 0
        self._keys = self._values = torch.zeros(0)
        self._root = torch.zeros(0)  # [1, hidden] predicted feature of the root
        self._slots: dict[int, int] = {}
        self._features = self._ancestors = torch.zeros(0)

    @torch.inference_mode()
    def enter(self, tokens: Sequence[int], features: Tensor) -> None:
        """Adds the rows of newly committed tokens; `features` `[rows, hidden]` are the target's own, `tokens` end with the next root."""
        self._slots = {}
        after = torch.tensor(tokens[self.length + 1 : self.length + 1 + len(features)], device=features.device)
        for start in range(0, len(features), ENTER_CHUNK):
            part = slice(start, start + ENTER_CHUNK)
            x = self.layer.fuse(self.embed(after[part]), features[part])[None]
            rows = torch.arange(x.shape[1], device=x.device)
            bias = x.new_zeros(len(rows), self.length + len(rows))
            bias[:, self.length :].masked_fill_(rows[:, None] < rows, float("-inf"))
            output = self._run(x, self.length + rows, bias, self.length)
            self.length += len(rows)
        self._root = output[-1:]

    @torch.inference_mode()
    def step(self, growth: Growth, nodes: Sequence[int]) -> Tensor:
        """Returns the predicted feature `[len(nodes), hidden]` after each node; one pass of the layer for all of them."""
        if list(nodes) == [0]:
            return self._root
        parents = [growth.parents[node] for node in nodes]
        used = len(self._slots)
        places = [self._slots.get(parent, -1) for parent in parents]  # -1: the root, whose row is a committed one
        tokens = torch.tensor([growth.tokens[node] for node in nodes], device=self._root.device)
        known = self._root if not used else torch.cat((self._features, self._root))
        x = self.layer.fuse(self.embed(tokens), known[places])[None]
        positions = torch.tensor([self.length - 1 + growth.depths[node] for node in nodes], device=x.device)
        allowed = self._extend(places, used)
        bias = x.new_zeros(len(nodes), self.length + allowed.shape[1])
        bias[:, self.length :].masked_fill_(~allowed, float("-inf"))
        output = self._run(x, positions, bias, self.length + used)
        self._slots |= {node: used + i for i, node in enumerate(nodes)}
        self._features = output if not used else torch.cat((self._features, output))
        return output

    def _extend(self, places: Sequence[int], used: int) -> Tensor:
        """Returns who may look at whom among the drafted nodes, `[new, used + new]`: a node sees its ancestors and itself."""
        count = len(places)
        mine = torch.eye(count, dtype=torch.bool, device=self._root.device)
        if not used:
            self._ancestors = mine
            return mine
        padded = torch.nn.functional.pad(self._ancestors, (0, 0, 0, 1))  # the added last row is the root's: it sees no drafted node
        new = torch.cat((padded[places], mine), 1)
        self._ancestors = torch.cat((torch.nn.functional.pad(self._ancestors, (0, count)), new))
        return new

    def _run(self, x: Tensor, positions: Tensor, bias: Tensor, at: int) -> Tensor:
        """Runs rows x `[1, rows, hidden]`, storing their keys and values from slot `at` on; returns `[rows, hidden]`."""
        rows = self.layer.project(x, positions)
        end = at + x.shape[1]
        self._reserve(end, rows.key)
        self._keys[:, :, at:end], self._values[:, :, at:end] = rows.key, rows.value
        attended = self.layer.attend(rows.query, self._keys[:, :, :end], self._values[:, :, :end], bias)
        return self.layer.finish(x, attended)[0]

    def _reserve(self, size: int, like: Tensor) -> None:
        """Grows the buffers by doubling; a run never knows beforehand how deep its trees go."""
        have = self._keys.shape[2] if self._keys.dim() == 4 else 0
        if size <= have:
            return
        grown = max(256, 2 * size)
        for name in ("_keys", "_values"):
            buffer = like.new_zeros(1, like.shape[1], grown, like.shape[3])
            if have:
                buffer[:, :, :have] = getattr(self, name)
            setattr(self, name, buffer)
