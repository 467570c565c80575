from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from specviz.drafters._hydra_module import HydraHeads, HydraSizes
from specviz.drafters._memory import DraftMemory
from specviz.drafters.base import Feedback, RowFlow, per_row
from specviz.drafters.heads import HeadDrafter
from specviz.shapes.base import Growth

if TYPE_CHECKING:
    from specviz.target import Target


class Hydra(HeadDrafter):
    """Medusa's heads, each told which tokens were drafted before it, so that every branch gets its own continuation (Hydra)."""

    method: ClassVar[str] = "hydra"
    module: HydraHeads

    def build(self, sizes: Mapping[str, Any]) -> HydraHeads:
        return HydraHeads(HydraSizes.from_json(sizes))

    def reads(self, sizes: Mapping[str, Any], target: Target) -> tuple[int, ...]:
        return (target.layers - int(sizes.get("state_offset", 0)),)

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree whose level d is drafted by head d, once for every node of the level before."""
        prefix = self.module.prefix
        memory = DraftMemory(prefix, self.embed) if prefix is not None else None
        while True:
            states = seen.hidden[self.taps[0]]
            state = states[-1:] if memory is None else memory.enter(seen.tokens, states)
            seen = yield self.grow(seen, partial(self._step, state), levels=len(self.module.heads))

    @torch.inference_mode()
    def _step(self, state: Tensor, growth: Growth, nodes: Sequence[int]) -> Tensor:
        """Returns log q `[len(nodes), draft vocab]` after each node; the nodes of one call are of one level, which one head drafts."""
        paths = torch.tensor([[growth.tokens[step] for step in growth.path_to(node)] for node in nodes], device=state.device)
        head = paths.shape[1] - 1
        embeddings = self.embed(paths)  # [nodes, head + 1, hidden]
        output = self.module.step(head, state.expand(len(nodes), -1), embeddings.unbind(1))
        if self.module.rows is None:
            return self.rows.log_q(output)
        return self.module.predict(head, output).float().log_softmax(-1)
