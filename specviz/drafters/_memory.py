"""What a draft layer remembers of one row, and the drafter that runs such a layer down the tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specviz.drafters._layer import DraftLayer
from specviz.drafters._layer_steps import ENTER, LayerSteps, Room
from specviz.drafters.base import Feedback, RowFlow, per_row
from specviz.drafters.heads import HeadDrafter
from specviz.graphs.draft import DraftLease
from specviz.shapes.base import Growth
from specviz.staging import send
from specviz.tree import TokenTree

ENTER_CHUNK = 512  # prompt rows per pass of the draft layer; bounds the memory of its attention scores


class DraftMemory:
    """Keys and values of a draft layer for one row: those of true states stay, those of the tree go after the round.

    Slot i < `length` holds the row of token i (embedding of token i+1, state of token i); later slots hold drafted nodes.
    """

    def __init__(self, layer: DraftLayer, embed: Any, room: Room | None = None) -> None:
        self.layer, self.embed = layer, embed
        self.length = 0
        self._keys, self._values = (torch.zeros(0), torch.zeros(0)) if room is None else (room.keys, room.values)
        self._root = torch.zeros(0)  # [1, hidden] the layer's output for the root
        self._slots: dict[int, int] = {}
        self._outputs = self._ancestors = torch.zeros(0)

    @torch.inference_mode()
    def enter(self, tokens: Sequence[int], states: Tensor) -> Tensor:
        """Adds the rows of newly committed tokens and returns the output `[1, hidden]` of the last one.

        `states` `[rows, width]` are the target's own, the taps side by side; `tokens` end with the next root.
        """
        self._slots = {}
        after = send(tokens[self.length + 1 : self.length + 1 + len(states)], states.device)
        for start in range(0, len(states), ENTER_CHUNK):
            part = slice(start, start + ENTER_CHUNK)
            embedding = self.embed(after[part])[None]
            x = self.layer.mix(embedding, self.layer.combine(states[part])[None])
            rows = torch.arange(x.shape[1], device=x.device)
            bias = x.new_zeros(len(rows), self.length + len(rows))
            if len(rows) > 1:
                bias[:, self.length :].masked_fill_(rows[:, None] < rows, float("-inf"))
            output = self._run(embedding, x, self.length + rows, bias, self.length)
            self.length += len(rows)
        self._root = output[-1:]
        return self._root

    def entered(self, count: int) -> None:
        """Notes that a replay has stored the rows of so many newly committed tokens in the room that it shares with this memory."""
        self.length += count

    @torch.inference_mode()
    def step(self, growth: Growth, nodes: Sequence[int]) -> Tensor:
        """Returns the layer's output `[len(nodes), hidden]` after each node; one pass of the layer for all of them."""
        if list(nodes) == [0]:
            return self._root
        used = len(self._slots)
        places = [self._slots.get(growth.parents[node], used) for node in nodes]  # `used`: the root, whose row is a committed one
        now = [places, [growth.tokens[node] for node in nodes], [self.length - 1 + growth.depths[node] for node in nodes]]
        above, tokens, positions = send(now, self._root.device)
        known = self._root if not used else torch.cat((self._outputs, self._root))
        embedding = self.embed(tokens)[None]
        x = self.layer.mix(embedding, self.layer.feedback(known.index_select(0, above))[None])
        allowed = self._extend(above, used)
        bias = x.new_zeros(len(nodes), self.length + allowed.shape[1])
        bias[:, self.length :].masked_fill_(~allowed, float("-inf"))
        output = self._run(embedding, x, positions, bias, self.length + used)
        self._slots |= {node: used + i for i, node in enumerate(nodes)}
        self._outputs = output if not used else torch.cat((self._outputs, output))
        return output

    def _extend(self, above: Tensor, used: int) -> Tensor:
        """Returns who may look at whom among the drafted nodes, `[new, used + new]`: a node sees its ancestors (`above`: its parent) and itself."""
        count = len(above)
        mine = torch.eye(count, dtype=torch.bool, device=self._root.device)
        if not used:
            self._ancestors = mine
            return mine
        padded = torch.nn.functional.pad(self._ancestors, (0, 0, 0, 1))  # the added last row is the root's: it sees no drafted node
        new = torch.cat((padded.index_select(0, above), mine), 1)
        self._ancestors = torch.cat((torch.nn.functional.pad(self._ancestors, (0, count)), new))
        return new

    def _run(self, embedding: Tensor, x: Tensor, positions: Tensor, bias: Tensor, at: int) -> Tensor:
        """Runs rows x `[1, rows, hidden]`, storing their keys and values from slot `at` on; returns `[rows, hidden]`."""
        rows = self.layer.project(self.layer.read(embedding, x), positions)
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


class LayerDrafter(HeadDrafter):
    """A drafter whose head is one draft layer, run step by step down the tree."""

    module: DraftLayer
    remembers = True

    def log_q(self, output: Tensor) -> Tensor:
        """Returns log q `[rows, draft vocab]` for outputs of the layer `[rows, hidden]`."""
        return self.rows.log_q(output)

    def steps(self, slots: int) -> LayerSteps:
        return LayerSteps(self.module, self.embed, self.log_q, self.rows.vocabulary, states=self.no_states(ENTER), slots=slots)

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree grown by draft steps; true states of the accepted tokens re-enter every round."""
        with self.lend(seen) as lease:
            memory = DraftMemory(self.module, self.embed, None if lease is None else lease.steps.room)

            def step(growth: Growth, nodes: Sequence[int]) -> Tensor:
                with torch.inference_mode():
                    return self.log_q(memory.step(growth, nodes))

            while True:
                known = memory.length
                states = torch.cat([seen.hidden[tap] for tap in self.taps], -1) if len(self.taps) > 1 else seen.hidden[self.taps[0]]
                tree = None if lease is None else self._replayed(lease, memory, seen, states)
                if tree is None:
                    memory.enter(seen.tokens, states[memory.length - known :])
                    tree = self.grow(seen, step)
                seen = yield tree

    def _replayed(self, lease: DraftLease[LayerSteps], memory: DraftMemory, seen: Feedback, states: Tensor) -> TokenTree | None:
        """Returns the tree of one replay, which takes in the last rows; those before them, as after prefill, enter by the ordinary path first."""
        early = max(0, len(states) - ENTER)
        if early:
            memory.enter(seen.tokens, states[:early])
        tree = self.replay(lease, seen, lease.steps.numbers(seen.tokens, memory.length), states[early:])
        if tree is not None:
            memory.entered(len(states) - early)
        return tree
