"""How a converted head is served: vLLM's speculative_config and the command line, filled in with names and a draft length."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.checkpoints.base import Head
from specviz.errors import BadInput

WORTH = 0.1  # a further draft token is worth its step while at least one round in ten accepts it
UNMEASURED = 3  # what vLLM's own examples take
VLLM_FORMS = {"medusa": "medusa_vllm", "eagle": "eagle", "eagle3": "speculators"}


@dataclass(frozen=True)
class DraftLength:
    """How many tokens to draft per round, and whether that was measured."""

    tokens: int
    why: str


@dataclass(frozen=True)
class Snippet:
    """The `speculative_config` record and the command that serves the head."""

    config: dict[str, Any]
    command: str
    why: str
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        record = f"speculative_config = {json.dumps(self.config, indent=2)}"
        why = f"Draft length {self.config['num_speculative_tokens']}: {self.why}."
        return "\n\n".join([record, self.command, why, *self.notes])


def draft_length(head: Head, wanted: int | None = None) -> DraftLength:
    """Returns the wanted length, else the measured one: the depths that at least one chain in ten reaches and accepts."""
    most = getattr(head.sizes, "heads", None) if head.method in ("medusa", "hydra") else None
    if wanted is not None:
        if wanted < 1 or (most is not None and wanted > most):
            raise BadInput(f"Draft length {wanted} does not fit. Expected 1 to {most or 'any number'}.")
        return DraftLength(wanted, "as asked for")
    acceptance = head.training.get("held_out_acceptance")
    if isinstance(acceptance, list) and acceptance and all(isinstance(a, int | float) for a in acceptance):
        reached, depths = 1.0, 0
        for share in acceptance[:most]:
            reached *= share
            depths += reached >= WORTH
        return DraftLength(
            max(1, depths),
            f"held-out acceptance per depth is {', '.join(f'{a:.2f}' for a in acceptance)}, and depths that one chain in ten reaches are drafted",
        )
    return DraftLength(most or UNMEASURED, "not measured for this head; measure it and correct the number")


def vllm_snippet(head: Head, folder: Path, target: str, length: DraftLength, notes: tuple[str, ...] = ()) -> Snippet:
    """Returns what serves the head from `folder` on vLLM; raises BadInput for a method that vLLM cannot run."""
    if head.method not in VLLM_FORMS:
        raise BadInput(f"vLLM cannot run {head.method} heads. It runs: {', '.join(VLLM_FORMS)}.")
    config = {"method": head.method, "model": str(folder), "num_speculative_tokens": length.tokens}
    command = f"vllm serve {shlex.quote(target)} --speculative-config {shlex.quote(json.dumps(config))}"
    return Snippet(config, command, length.why, notes)
