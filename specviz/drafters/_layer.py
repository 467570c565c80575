"""The decoder layer that learned drafters share: grouped-query attention with rotary positions, then a gated MLP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from specviz.errors import BadInput

ROPE_KINDS = ("default", "linear", "llama3")  # those whose frequencies do not change with the length of the text


@dataclass(frozen=True)
class LayerSizes:
    """Shape of a draft layer, and how it turns positions into rotations; `rope_scaling` is the dict of a transformers config."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    draft_vocab: int
    qkv_bias: bool = False
    rope_scaling: Mapping[str, Any] | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return cls(**raw)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Projected:
    """Query `[B, heads, T, head_dim]`, key and value `[B, kv_heads, T, head_dim]` of some rows, rotated to their positions."""

    query: Tensor
    key: Tensor
    value: Tensor


@dataclass(frozen=True)
class Turn:
    """Rotations of some positions: cosines and sines `[.., T, head_dim / 2]`, or `wide`, `[.., T, head_dim]` with signs, for `_rotate_wide`."""

    cos: Tensor
    sin: Tensor
    wide: bool = False

    def widen(self) -> Turn:
        return Turn(torch.cat((self.cos, self.cos), -1), torch.cat((-self.sin, self.sin), -1), True)

    def part(self, start: int, count: int) -> Turn:
        """Returns the rotations of `count` positions from number `start` on."""
        return Turn(self.cos[..., start : start + count, :], self.sin[..., start : start + count, :], self.wide)


class DraftLayer(nn.Module):
    """Attention and MLP of one Llama layer; what goes in and what the residual is, each drafter decides.

    A draft step is `x = mix(embedding, state)`, `attend` over `project(read(embedding, x))`, `finish(x, attended)`; `feedback`
    of the output is the next step's state. `combine` makes the first state of the target's tapped ones.
    """

    frequencies: Tensor

    def build(self, sizes: LayerSizes, width: int) -> None:
        """Makes the layer's weights; `width` is what attention reads per row. Called by the constructors after their own first weights."""
        d, wide, narrow = sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.sizes = sizes
        self.q_proj = nn.Linear(width, wide, bias=sizes.qkv_bias)
        self.k_proj = nn.Linear(width, narrow, bias=sizes.qkv_bias)
        self.v_proj = nn.Linear(width, narrow, bias=sizes.qkv_bias)
        self.o_proj = nn.Linear(wide, d, bias=False)
        self.post_attention_layernorm = nn.RMSNorm(d, eps=sizes.norm_eps)
        self.gate_proj = nn.Linear(d, sizes.intermediate, bias=False)
        self.up_proj = nn.Linear(d, sizes.intermediate, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate, d, bias=False)
        self.register_buffer("frequencies", rope_frequencies(sizes.head_dim, sizes.rope_theta, sizes.rope_scaling), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Moves or casts the layer; the frequencies stay in fp32, as rounded ones would turn a late position by another angle."""
        super()._apply(fn, recurse)
        exact = rope_frequencies(self.sizes.head_dim, self.sizes.rope_theta, self.sizes.rope_scaling)
        self.frequencies = exact.to(self.frequencies.device)
        return self

    def combine(self, states: Tensor) -> Tensor:
        """Returns the state `[.., hidden]` of true tokens from the target's tapped states side by side."""
        return states

    def mix(self, embedding: Tensor, state: Tensor) -> Tensor:
        """Returns the residual stream `[B, T, hidden]` that the layer starts from."""
        return state

    def read(self, embedding: Tensor, x: Tensor) -> Tensor:
        """Returns what attention reads, `[B, T, width]`."""
        return x

    def feedback(self, output: Tensor) -> Tensor:
        """Returns the state that the next draft step starts from."""
        return output

    def project(self, x: Tensor, positions: Tensor) -> Projected:
        """Returns rotated query, key and value of rows x `[B, T, width]` at `positions` `[T]` or `[B, T]`."""
        return self.turned(x, self.turn(positions, x.dtype))

    def turn(self, positions: Tensor, dtype: torch.dtype) -> Turn:
        """Returns the rotations of `positions` `[T]` or `[B, T]`."""
        angles = positions[..., None].float() * self.frequencies  # [.., T, head_dim / 2]
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        return Turn(cos, sin) if cos.dim() == 2 else Turn(cos[:, None], sin[:, None])

    def turned(self, x: Tensor, turn: Turn) -> Projected:
        """Returns query, key and value of rows x `[B, T, width]`, rotated; one rotation serves all rows when it is of one position."""
        heads = (*x.shape[:2], -1, self.sizes.head_dim)
        query, key, value = (made(x).view(heads).transpose(1, 2) for made in (self.q_proj, self.k_proj, self.v_proj))
        rotate = _rotate_wide if turn.wide else _rotate
        return Projected(rotate(query, turn), rotate(key, turn), value)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, own: Sequence[Projected] = ()) -> Tensor:
        """Returns `[B, T, heads * head_dim]`; `bias` `[T, keys]` is 0 where a row may look and -inf elsewhere.

        `own` adds keys that only the row of the same index sees: its own earlier draft steps.
        """
        if not own:
            fused = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype), enable_gqa=True)
            return fused.transpose(1, 2).flatten(2)
        group, scale = self.sizes.heads // self.sizes.kv_heads, self.sizes.head_dim**-0.5
        query = (query * scale).unflatten(1, (-1, group))  # [B, kv_heads, group, T, head_dim]
        scores = query @ key[:, :, None].mT + bias.to(query.dtype)
        single = [(query * p.key[:, :, None]).sum(-1, keepdim=True) for p in own]
        weights = torch.cat((scores, *single), -1).softmax(-1)
        shared, *rest = weights.split([key.shape[2], *[1] * len(own)], -1)
        mixed = shared @ value[:, :, None]
        for weight, p in zip(rest, own, strict=True):
            mixed = mixed + weight * p.value[:, :, None]
        rows: Tensor = mixed.flatten(1, 2).transpose(1, 2).flatten(2)
        return rows

    def finish(self, residual: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's output `[B, T, hidden]` from its residual and its attention output."""
        x = residual + self.o_proj(attended)
        inner = normed(self.post_attention_layernorm, x)
        output: Tensor = x + self.down_proj(functional.silu(self.gate_proj(inner)) * self.up_proj(inner))
        return output


def normed(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    """Applies the norm in its own dtype: a mixed pair has no fused kernel."""
    output: Tensor = norm(x.to(norm.weight.dtype))
    return output


def causal_bias(rows: Tensor) -> Tensor:
    """Returns `[T, T]`: 0 where row i may look at row j <= i, -inf elsewhere."""
    return torch.zeros(len(rows), len(rows), device=rows.device).masked_fill(rows[:, None] < rows, float("-inf"))


def rope_frequencies(head_dim: int, theta: float, scaling: Mapping[str, Any] | None = None) -> Tensor:
    """Returns the rotary frequencies `[head_dim / 2]`; raises BadInput for a scaling that depends on the length of the text.

    Source: RoFormer section 3.2.2; `llama3` is the scaling of Llama 3.1.
    """
    powers = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    plain = theta**-powers
    kind = (scaling or {}).get("rope_type") or (scaling or {}).get("type") or "default"
    if kind not in ROPE_KINDS:
        raise BadInput(f"rope scaling {kind!r} is not supported in a draft layer. Expected one of: {', '.join(ROPE_KINDS)}.")
    if kind == "default" or scaling is None:
        return plain.float()
    factor = float(scaling["factor"])
    if kind == "linear":
        return (plain / factor).float()
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * plain / (2 * math.pi)  # full turns over the original context
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)  # 1: fast, unchanged; 0: slow, divided by the factor
    return (plain * keep + plain / factor * (1 - keep)).float()


def _rotate(x: Tensor, turn: Turn) -> Tensor:
    """Rotary position, halves convention (as in Llama): pairs are (j, j + head_dim / 2)."""
    low, high = x.chunk(2, -1)
    return torch.cat((low * turn.cos - high * turn.sin, high * turn.cos + low * turn.sin), -1)


def _rotate_wide(x: Tensor, turn: Turn) -> Tensor:
    """The same in three kernels instead of seven: faster on a GPU, where launches count, and slower on a CPU."""
    return torch.addcmul(x * turn.cos, x.roll(x.shape[-1] // 2, -1), turn.sin)
