"""A drafter for tests that grows any shape from the target's own logits plus noise, with sampled children if asked: every verdict occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from specviz import shapes
from specviz.build import build_rule
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.registry import Bound, bind
from specviz.sampling import Sampling
from specviz.shapes.base import Growth, Sampler
from specviz.target import Target
from specviz.trace import Trace


class Growing(Drafter):
    """Knows the target's logits up to noise, so that its trees are partly right."""

    def __init__(self, target: Target, shape: Bound, *, sampled: bool = False, noise: float = 1.5) -> None:
        super().__init__(target)
        self.shape, self.sampled, self.noise, self.name = shape, sampled, noise, "growing"
        self.spec = {"knobs": {}, "shape": shape.to_json()}

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        while True:
            text = list(seen.tokens)
            sampler = Sampler(seen.sampling, seen.uniform, seen.position, self.target.vocab_size) if self.sampled else None
            growth = Growth(seen.next_token, lambda grown, nodes, text=text: self._guess(text, grown, nodes), depth_limit=seen.room, sampler=sampler)
            seen = yield self.shape(growth)

    @torch.inference_mode()
    def _guess(self, text: Sequence[int], growth: Growth, nodes: Sequence[int]) -> torch.Tensor:
        paths = [[*text, *(growth.tokens[node] for node in growth.path_to(leaf)[1:])] for leaf in nodes]
        logits = torch.stack([self.target.model(torch.tensor([path])).logits[0, -1].float() for path in paths])
        noise = torch.Generator().manual_seed(len(text))
        return (logits + self.noise * torch.randn(logits.shape, generator=noise)).log_softmax(-1)


def run_growing(
    target: Target, shape: str = "dynamic", knobs: Mapping[str, Any] | None = None, *, rule: str = "rejection", sampling: Sampling | None = None, sampled: bool = False, new: int = 24, noise: float = 1.5,
) -> Trace:  # fmt: skip
    """Returns the trace of a run of `Growing` on a fixed prompt."""
    drafter, trace = Growing(target, bind(shapes, shape, knobs or {}), sampled=sampled, noise=noise), Trace()
    request = Request(tuple(target.encode("to be or not")), "to be or not")
    for _ in trace.record(decode(target, drafter, build_rule(rule), [request], sampling=sampling or Sampling(), max_new_tokens=new)):
        pass
    return trace
