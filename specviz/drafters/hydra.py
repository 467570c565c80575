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
from specviz.graphs.grow import Drafted, Form, Steps
from specviz.shapes.base import Growth
from specviz.staging import send

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

    @property
    def levels(self) -> int:
        return len(self.module.heads)

    @property
    def replayable(self) -> bool:
        return self.module.prefix is None

    def steps(self, slots: int) -> HydraSteps:
        return HydraSteps(self)

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree whose level d is drafted by head d, once for every node of the level before."""
        prefix = self.module.prefix
        memory = DraftMemory(prefix, self.embed) if prefix is not None else None
        with self.lend(seen) as lease:
            while True:
                states = seen.hidden[self.taps[0]]
                state = states[-1:] if memory is None else memory.enter(seen.tokens, states)
                tree = None if lease is None else self.replay(lease, seen, [seen.next_token], state)
                seen = yield tree or self.grow(seen, partial(self._step, state))

    @torch.inference_mode()
    def _step(self, state: Tensor, growth: Growth, nodes: Sequence[int]) -> Tensor:
        """Returns log q `[len(nodes), draft vocab]` after each node; the nodes of one call are of one level, which one head drafts."""
        paths = send([[growth.tokens[step] for step in growth.path_to(node)] for node in nodes], state.device)
        return self.log_q(state, self.embed(paths))

    def log_q(self, state: Tensor, embeddings: Tensor) -> Tensor:
        """Returns log q `[nodes, draft vocab]` of the head that has `embeddings` `[nodes, head + 1, hidden]` of the path to each node."""
        head = embeddings.shape[1] - 1
        output = self.module.step(head, state.expand(len(embeddings), -1), embeddings.unbind(1))
        if self.module.rows is None:
            return self.rows.log_q(output)
        return self.module.predict(head, output).float().log_softmax(-1)


class HydraSteps(Steps):
    """Hydra's heads over fixed tensors; `numbers[1]` is the root, `states` `[1, hidden]` that of the token before it."""

    def __init__(self, drafter: Hydra) -> None:
        super().__init__(drafter.rows.vocabulary, 2, drafter.no_states(1))
        self._drafter = drafter

    def first(self, form: Form, view: int, numbers: Tensor, states: Tensor) -> Drafted:
        path = self._drafter.embed(numbers[1:])[None]
        return Drafted(self._drafter.log_q(states, path), (states, path))

    def step(self, form: Form, level: int, tokens: Tensor, parents: Tensor, carry: tuple[Tensor, Tensor]) -> Drafted:
        state, path = carry
        path = torch.cat((path.index_select(0, parents), self._drafter.embed(tokens)[:, None]), 1)
        return Drafted(self._drafter.log_q(state, path), (state, path))
