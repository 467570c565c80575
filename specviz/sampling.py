"""Temperature, top-k and top-p; keyed uniforms; drawing by inverse CDF in vocabulary order.

Randomness is keyed, not streamed: a uniform depends on (seed, position, purpose, index) alone. So a run with
deterministic children gives at T > 0 token for token the text of plain sampling with the same seed.
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from specviz.errors import BadInput

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Sampling:
    """How the target's distribution is warped (temperature, then top-k, then top-p) and with which seed it is drawn from.

    temperature 0 means greedy; top_k 0 and top_p 1 switch those filters off.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature <= 100.0:
            raise BadInput(f"temperature={self.temperature!r} is out of range. Expected 0 (greedy) to 100.")
        if not 0.0 < self.top_p <= 1.0:
            raise BadInput(f"top_p={self.top_p!r} is out of range. Expected more than 0, at most 1 (1 = off).")
        if self.top_k < 0:
            raise BadInput(f"top_k={self.top_k!r} is negative. Expected 0 (off) or a number of tokens.")
        if not 0 <= self.seed < 2**63:
            raise BadInput(f"seed={self.seed!r} is out of range. Expected 0 to 2**63 - 1.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Uniform:
    """All randomness of a run: uniforms in [0, 1) that depend on (seed, position, purpose, index) and nothing else."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, position: int, purpose: str, index: int = 0) -> float:
        """Returns the uniform of this key."""
        key = struct.pack("<qqq", self.seed, position, index) + purpose.encode()
        return (int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 11) / 2.0**53

    def draw(self, p: torch.Tensor, position: int, purpose: str, index: int = 0) -> int:
        """Returns the token that this key's uniform draws from `p` [vocab]."""
        return draw(p, self(position, purpose, index))


def temper(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Returns logits / temperature in float64, each row moved to maximum 0 so that no temperature overflows (0 counts as 1)."""
    shifted = logits.double()
    return (shifted - shifted.amax(-1, keepdim=True)) / (temperature or 1.0)


def warp(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Returns the warped distribution [rows, vocab] in float64; at temperature 0 all mass lies on the argmax."""
    import torch

    if sampling.greedy:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    scaled = temper(logits, sampling.temperature)
    if 0 < sampling.top_k < scaled.shape[-1]:
        limit = scaled.topk(sampling.top_k, -1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < limit, -torch.inf)
    p = scaled.softmax(-1)
    return p if sampling.top_p >= 1.0 else _nucleus(p, sampling.top_p)


def _nucleus(p: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keeps the smallest set of most likely tokens whose mass reaches `top_p`, renormalised; exact ties at the edge stay together.

    Sorting a whole vocabulary costs more than a small model's layer, so the few largest are tried first.
    """
    few = min(p.shape[-1], 1024)
    ordered = p.topk(few, -1).values
    if bool((ordered.sum(-1) < top_p).any()):
        ordered = p.sort(-1, descending=True).values
    inside = ordered.cumsum(-1) - ordered < top_p  # the token that crosses the limit stays
    edge = ordered.gather(-1, inside.sum(-1, keepdim=True) - 1)
    kept = p.masked_fill(p < edge, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def draw(p: torch.Tensor, u: float) -> int:
    """Returns the token at which the cumulative sum of `p` [vocab] first exceeds u * sum(p); never one of probability 0."""
    import torch

    cumulative = p.double().cumsum(-1)
    total = float(cumulative[-1])
    if total <= 0.0:
        raise BadInput("Cannot draw a token: the distribution has no mass.")
    index = int(torch.searchsorted(cumulative, torch.tensor(u * total, dtype=torch.float64, device=p.device), right=True))
    if index >= p.shape[-1] or float(p[index]) == 0.0:  # rounding at the very end: the last token that has mass
        index = int(p.nonzero()[-1])
    return index
