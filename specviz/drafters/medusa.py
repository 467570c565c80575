from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from torch import Tensor

from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.drafters.heads import DraftRows, check_target, fill, head_folder, load_head, sampler_for
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.registry import Bound, Knob
from specviz.shapes.base import Growth
from specviz.tree import TokenTree

if TYPE_CHECKING:
    from specviz.target import Target


class Medusa(Drafter):
    """Several small heads guess the tokens after next from ONE hidden state, all at once (Medusa)."""

    default_shape: ClassVar[str | None] = "dynamic"
    # Fastest on 2 CPU cores among trees of 4 to 24 nodes, where every node costs time; a GPU verifies far more for nothing.
    default_knobs: ClassVar[Mapping[str, Any]] = {"nodes": 8, "depth": 3, "top_k": 4}
    learned: ClassVar[bool] = True

    def __init__(
        self,
        target: Target,
        *,
        shape: Bound,
        children: Annotated[
            str, Knob("Children", "top: each head's best tokens; sampled: drawn from it above temperature 0.", choices=("top", "sampled"))
        ] = "top",
        checkpoint: Annotated[str, Knob("Checkpoint", "Folder of the trained heads; empty for the ones that come with the target.", advanced=True)] = "",
    ) -> None:
        super().__init__(target)
        self.shape, self.children, self.taps = shape, children, (target.layers,)
        self.folder = head_folder(target, "medusa", checkpoint)
        head = load_head(self.folder, "medusa")
        self.config, self.warnings = head.config, check_target(head.config, target)
        heads = MedusaHeads(MedusaSizes.from_json(head.config.sizes))
        fill(heads, head)
        self.heads = heads.to(target.device, target.dtype)
        self.rows = DraftRows(target, head.vocabulary)

    def describe(self) -> dict[str, Any]:
        return {"trained_against": self.config.fingerprint.to_json(), "warnings": list(self.warnings), "draft_vocabulary": len(self.rows.vocabulary)}

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields a tree whose level d holds the choices of head d: siblings' subtrees repeat, as no head sees the others' tokens."""
        while True:
            seen = yield self._grow(self._guess(seen.hidden[self.taps[0]][-1]), seen)

    @torch.inference_mode()
    def _guess(self, state: Tensor) -> Tensor:
        """Returns log q `[heads, draft vocab]` from the state `[hidden]` of the last committed token, the one before the root."""
        states = self.heads(state)
        if self.heads.rows is None:
            return self.rows.log_q(states)
        return self.heads.predict(states).float().log_softmax(-1)

    def _grow(self, log_q: Tensor, seen: Feedback) -> TokenTree:
        def step(growth: Growth, nodes: Sequence[int]) -> Tensor:
            return log_q[[growth.depths[node] for node in nodes]]

        growth = Growth(
            seen.next_token,
            step,
            depth_limit=min(len(log_q), seen.room),
            vocabulary=self.rows.vocabulary,
            sampler=sampler_for(seen, self.children, self.target.vocab_size),
        )
        tree: TokenTree = self.shape(growth)
        return tree
