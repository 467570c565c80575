"""flashspec from the package registry: speculative decoding for transformers models, by its prompt-lookup drafter."""

from __future__ import annotations

from collections.abc import Sequence

from specviz.peers._stock import load_stock
from specviz.peers.base import Answer, Job, Peer


class Flashspec(Peer):
    """SpeculativeEngine(drafter_strategy="bandit", one NgramDrafter, gamma 4): its prompt lookup alone, its defaults otherwise."""

    label = "flashspec, prompt lookup"
    packages = ("flashspec", "torch", "transformers")
    requires = ("flashspec==0.3.1",)
    notes = "flashspec is made for CUDA; it says of itself that its CPU runs were slower than plain decoding"

    def load(self, job: Job) -> None:
        import torch
        from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
        from flashspec.engine import NgramDrafter, TargetModel

        # "bandit" with one arm is how its documentation asks for a drafter alone; temperature 0 selects its greedy variant
        chosen = {"drafter_strategy": "bandit", "bandit": BanditConfig(n_arms=1), "sampling": SamplingConfig(temperature=0.0)}
        config = FlashSpecConfig(device=job.device, dtype=job.dtype, eos_token_ids=job.eos, **chosen)
        target = TargetModel(job.source, torch.device(job.device), getattr(torch, job.dtype), model=load_stock(job))
        self.engine, self.device = SpeculativeEngine(config, [NgramDrafter()], target), job.device

    def generate(self, ids: Sequence[int], max_new_tokens: int) -> Answer:
        import torch

        found = self.engine.generate(torch.tensor([list(ids)], device=self.device), max_new_tokens=max_new_tokens)
        return Answer(tuple(found.output_ids[0, : found.n_tokens_generated].tolist()), len(found.arm_steps))
