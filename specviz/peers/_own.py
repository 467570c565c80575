"""Our own drafters as rows of the same table, each in a process of its own like everybody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specviz.events import Finished
from specviz.peers.base import Answer, Job, Peer


class Own(Peer):
    """decode() by one of our drafters with the greedy rule; nothing is recorded."""

    label = "specviz"

    def load(self, job: Job) -> None:
        from specviz.build import build_drafter, build_rule, parse_spec
        from specviz.decode import Request, decode
        from specviz.sampling import Sampling
        from specviz.target import Target

        dtype = None if job.dtype in ("auto", "") else job.dtype
        self.target, rule = Target.load(job.target, job.device, dtype), build_rule("greedy")
        drafter = build_drafter(self.target, parse_spec(job.spec))
        self.decode = lambda ids, new: decode(self.target, drafter, rule, [Request(tuple(ids))], sampling=Sampling(), max_new_tokens=new, detail=False)

    def generate(self, ids: Sequence[int], max_new_tokens: int) -> Answer:
        finished = next(event for event in self.decode(ids, max_new_tokens) if isinstance(event, Finished))
        return Answer(tuple(finished.tokens), finished.rounds + 1)  # the prompt's forward gave the first token

    def describe(self) -> dict[str, Any]:
        """Returns what the other peers have to be told (where the model runs, in which dtype, its end tokens), and how ours verifies."""
        told = {"device": str(self.target.device), "dtype": str(self.target.dtype).removeprefix("torch."), "eos": sorted(self.target.eos)}
        return {**told, "graphs": self.target.graphs.mode, "notes": list(self.target.notes)}

    def encode(self, prompts: Sequence[str], raw: bool) -> list[list[int]]:
        """Returns every prompt's ids: one user turn of the chat template, or with `raw` the text as it is."""
        return [self.target.encode(prompt, chat=not raw) for prompt in prompts]

    def gap(self, ids: Sequence[int], position: int, here: int | None, there: int | None) -> dict[str, Any]:
        """Returns a difference with how close the target's decision was: `ids` is all text before it, `here` the reference's token."""
        from specviz.analysis.compare import Difference
        from specviz.bench import measure_gap
        from specviz.sampling import Sampling

        return measure_gap(self.target, ids, Difference(position, here, there), Sampling()).to_json()
