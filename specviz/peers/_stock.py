"""The stock model of transformers, as everybody has it: unpacked layers, sdpa attention, its own `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from specviz.peers.base import Answer, Job, Peer


def load_stock(job: Job) -> Any:
    """Returns transformers' own model for a job."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_float32_matmul_precision("highest")  # TF32 off, as our own targets have it
    model = AutoModelForCausalLM.from_pretrained(job.source, dtype=getattr(torch, job.dtype), attn_implementation="sdpa")
    return model.to(job.device).eval()


class Stock(Peer):
    """A peer that calls `generate` with `options`; `one_each` is True where every forward gives exactly one token."""

    options: ClassVar[dict[str, Any]] = {}
    one_each: ClassVar[bool] = True

    def load(self, job: Job) -> None:
        self.job, self.model, self.forwards = job, load_stock(job), 0
        if not self.one_each:  # a hook would stand in the way of a compiled forward, so it is set only where it is needed
            self.model.register_forward_pre_hook(self._count)

    def generate(self, ids: Sequence[int], max_new_tokens: int) -> Answer:
        import torch

        self.forwards, eos = 0, list(self.job.eos)
        prompt = torch.tensor([list(ids)], device=self.job.device)
        told = {"attention_mask": torch.ones_like(prompt), "eos_token_id": eos or None, "pad_token_id": eos[0] if eos else 0}
        found = self.model.generate(prompt, max_new_tokens=max_new_tokens, do_sample=False, **told, **self.options)
        tokens = tuple(found[0, len(ids) :].tolist())
        return Answer(tokens, len(tokens) if self.one_each else self.forwards)

    def _count(self, *_: Any) -> None:
        self.forwards += 1
