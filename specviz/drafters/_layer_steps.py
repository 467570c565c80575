"""The draft steps of a decoder layer over fixed tensors, for drafting by replay; the same layer, and the same numbers, as `DraftMemory`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specviz.drafters._layer import DraftLayer, Projected, Turn
from specviz.graphs.grow import MOST_EXPANDED, Drafted, Form, Steps

ENTER = 16  # committed tokens that a replay takes in; a round commits no more than the root and the 12 levels of the deepest tree
ALIGNED = 16  # slots of drafted nodes that attention looks at come in multiples of this: fused kernels want aligned masks
_BEFORE = 3  # of `numbers`: levels, committed tokens before this round, committed in this round; then the tokens after those


@dataclass(frozen=True)
class Room:
    """Keys and values of committed tokens, `[1, kv_heads, slots, head_dim]` each."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class Carry:
    """What a draft step hands to the next one.

    output  `[nodes, hidden]` of its nodes; sees `[nodes, drafted slots]` their additive mask over drafted nodes
    prefix  `[view]` the same over committed tokens, alike for all nodes; turn: the rotations of all positions of this round
    """

    output: Tensor
    sees: Tensor
    prefix: Tensor
    turn: Turn
    view: int


class LayerSteps(Steps):
    """Keys and values of one row: drafted nodes first, in slots that every step has for itself, then committed tokens.

    Attention looks at the drafted slots that the form has and at the first `view` committed ones, side by side in one buffer.
    """

    def __init__(
        self, layer: DraftLayer, embed: Callable[[Tensor], Tensor], log_q: Callable[[Tensor], Tensor], vocabulary: Tensor, *, states: Tensor, slots: int
    ) -> None:
        """`states` `[ENTER, width]` of zeros: where the target's states come in, and of which dtype everything is."""
        super().__init__(vocabulary, _BEFORE + ENTER, states)
        self._layer, self._embed, self._log_q, self.slots = layer, embed, log_q, slots
        sizes, device = layer.sizes, states.device
        self._keys, self._values = (states.new_zeros(1, sizes.kv_heads, MOST_EXPANDED + slots, sizes.head_dim) for _ in range(2))
        self._group = sizes.heads // sizes.kv_heads
        self._places = torch.arange(slots, device=device)
        drafted = torch.arange(MOST_EXPANDED, device=device)
        self._itself = self._hide(drafted[:, None] != drafted, states.dtype)
        self.inputs["numbers"][2] = 1

    @property
    def room(self) -> Room:
        """The committed part, for entering a prompt by the ordinary path."""
        return Room(self._keys[:, :, MOST_EXPANDED:], self._values[:, :, MOST_EXPANDED:])

    def reset(self) -> None:
        for tensor in (self._keys, self._values, *self.inputs.values()):  # zeros, because a masked NaN would still poison attention
            tensor.zero_()
        self.inputs["numbers"][2] = 1

    def numbers(self, tokens: Sequence[int], length: int) -> list[int]:
        """Returns what `numbers` holds after the levels, when all `tokens` but the last, the root, are committed and `length` have entered before."""
        after = tokens[length + 1 :]
        return [length, len(after), *after, *[0] * (ENTER - len(after))]

    def first(self, form: Form, view: int, numbers: Tensor, states: Tensor) -> Drafted:
        before, count, after = numbers[1:2], numbers[2:3], numbers[_BEFORE:]
        rows, last = before + self._places[:ENTER], before + count - 1  # positions, which are the slots too; those beyond `last` are padding
        turn = self._layer.turn(torch.cat((rows, last + self._places[1 : form.depth])), states.dtype).widen()
        embedding = self._embed(after)[None]
        x = self._layer.mix(embedding, self._layer.combine(states)[None])
        made = self._layer.turned(self._layer.read(embedding, x), turn.part(0, ENTER))
        self._keys.index_copy_(2, rows + MOST_EXPANDED, made.key)
        self._values.index_copy_(2, rows + MOST_EXPANDED, made.value)
        prefix = self._hide(self._places[:view] > last, states.dtype)
        mask = self._hide(self._places[:view] > rows[:, None], states.dtype).expand(self._group, -1, -1)
        output = self._layer.finish(x, self._attend(made, mask, MOST_EXPANDED, view))[0].index_select(0, count - 1)
        hidden = prefix.new_full((1, _drafted_slots(form)), torch.finfo(states.dtype).min)  # the root sees no drafted node
        return Drafted(self._log_q(output), Carry(output, hidden, prefix, turn, view))

    def step(self, form: Form, level: int, tokens: Tensor, parents: Tensor, carry: Carry) -> Drafted:
        embedding, start, drafted = self._embed(tokens)[None], form.starts[level], _drafted_slots(form)
        x = self._layer.mix(embedding, self._layer.feedback(carry.output.index_select(0, parents))[None])
        made = self._layer.turned(self._layer.read(embedding, x), carry.turn.part(ENTER + level - 1, 1))
        mine, own = slice(start, start + len(tokens)), MOST_EXPANDED - drafted
        self._keys[:, :, own + start : own + start + len(tokens)] = made.key
        self._values[:, :, own + start : own + start + len(tokens)] = made.value
        sees = torch.maximum(carry.sees.index_select(0, parents), self._itself[mine, :drafted])
        mask = torch.cat((sees.expand(self._group, -1, -1), carry.prefix.expand(self._group, len(tokens), -1)), -1)
        output = self._layer.finish(x, self._attend(made, mask, own, drafted + carry.view))[0]
        return Drafted(self._log_q(output), Carry(output, sees, carry.prefix, carry.turn, carry.view))

    def _attend(self, made: Projected, mask: Tensor, start: int, count: int) -> Tensor:
        """Returns `[1, rows, heads * head_dim]` over `count` slots from `start` on; `mask` `[group, rows, count]`, additive.

        The query heads of a group become rows of one product, so keys are never repeated.
        """
        query = made.query.reshape(1, self._layer.sizes.kv_heads, -1, self._layer.sizes.head_dim)
        keys, values = self._keys[:, :, start : start + count], self._values[:, :, start : start + count]
        out = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask.reshape(1, 1, -1, count))
        return out.reshape(made.query.shape).transpose(1, 2).flatten(2)

    def _hide(self, hidden: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the additive mask: the dtype's minimum where `hidden`, else 0."""
        return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, torch.finfo(dtype).min)


def _drafted_slots(form: Form) -> int:
    """Returns how many slots attention looks at for drafted nodes; those beyond what the form expands are seen by none."""
    return min(MOST_EXPANDED, -(-sum(form.frontiers[1:]) // ALIGNED) * ALIGNED)
