from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from specviz.drafters.base import Feedback, RowFlow, per_row
from specviz.drafters.heads import HeadDrafter
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.shapes.base import Growth


class Medusa(HeadDrafter):
    """Several small heads guess the tokens after next from ONE hidden state, all at once (Medusa)."""

    method: ClassVar[str] = "medusa"
    module: MedusaHeads

    def build(self, sizes: Mapping[str, Any]) -> MedusaHeads:
        return MedusaHeads(MedusaSizes.from_json(sizes))

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree whose level d holds the choices of head d: siblings' subtrees repeat, as no head sees the others' tokens."""
        while True:
            seen = yield self.grow(seen, partial(_of_depth, self._guess(seen.hidden[self.taps[0]][-1])), levels=len(self.module.heads))

    @torch.inference_mode()
    def _guess(self, state: Tensor) -> Tensor:
        """Returns log q `[heads, draft vocab]` from the state `[hidden]` of the last committed token, the one before the root."""
        states = self.module(state)
        if self.module.rows is None:
            return self.rows.log_q(states)
        return self.module.predict(states).float().log_softmax(-1)


def _of_depth(log_q: Tensor, growth: Growth, nodes: Sequence[int]) -> Tensor:
    return log_q[[growth.depths[node] for node in nodes]]
