from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from specviz.drafters.base import Feedback, RowFlow, per_row
from specviz.drafters.heads import HeadDrafter
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.graphs.grow import Drafted, Form, Steps
from specviz.shapes.base import Growth
from specviz.staging import send


class Medusa(HeadDrafter):
    """Several small heads guess the tokens after next from ONE hidden state, all at once (Medusa)."""

    method: ClassVar[str] = "medusa"
    wide: ClassVar[bool] = True
    module: MedusaHeads

    def build(self, sizes: Mapping[str, Any]) -> MedusaHeads:
        return MedusaHeads(MedusaSizes.from_json(sizes))

    @property
    def levels(self) -> int:
        return len(self.module.heads)

    def steps(self, slots: int) -> MedusaSteps:
        return MedusaSteps(self)

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree whose level d holds the choices of head d: siblings' subtrees repeat, as no head sees the others' tokens."""
        with self.lend(seen) as lease:
            while True:
                state = seen.hidden[self.taps[0]][-1:]
                tree = None if lease is None else self.replay(lease, seen, [], state)
                seen = yield tree or self.grow(seen, partial(_of_depth, self.log_q(state[0])))

    @torch.inference_mode()
    def log_q(self, state: Tensor) -> Tensor:
        """Returns log q `[heads, draft vocab]` from the state `[hidden]` of the last committed token, the one before the root."""
        states = self.module(state)
        if self.module.rows is None:
            return self.rows.log_q(states)
        return self.module.predict(states).float().log_softmax(-1)


class MedusaSteps(Steps):
    """Medusa's heads over fixed tensors: all of them at once in the first step; `states` `[1, hidden]` is that of the token before the root."""

    def __init__(self, drafter: Medusa) -> None:
        super().__init__(drafter.rows.vocabulary, 1, drafter.no_states(1))
        self._drafter = drafter

    def first(self, form: Form, view: int, numbers: Tensor, states: Tensor) -> Drafted:
        log_q = self._drafter.log_q(states[0])
        return Drafted(log_q[:1], log_q)

    def step(self, form: Form, level: int, tokens: Tensor, parents: Tensor, carry: Tensor) -> Drafted:
        return Drafted(carry[level : level + 1], carry)


def _of_depth(log_q: Tensor, growth: Growth, nodes: Sequence[int]) -> Tensor:
    return log_q.index_select(0, send([growth.depths[node] for node in nodes], log_q.device))
