"""The EAGLE draft layer: fuses a token with a feature and runs ONE decoder layer, for training and for serving alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class EagleSizes:
    """Shape of the draft layer; the target's own by default."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    norm_eps: float
    draft_vocab: int

    @classmethod
    def of(cls, config: Any, draft_vocab: int) -> EagleSizes:
        """Returns the sizes of a Llama-like target config."""
        rope = getattr(config, "rope_parameters", None) or {}
        theta = rope.get("rope_theta") or getattr(config, "rope_theta", 10000.0)
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            rope_theta=float(theta),
            norm_eps=float(config.rms_norm_eps),
            draft_vocab=draft_vocab,
        )

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> EagleSizes:
        return cls(**raw)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Projected:
    """Query `[B, heads, T, head_dim]`, key and value `[B, kv_heads, T, head_dim]` of some rows, rotated to their positions."""

    query: Tensor
    key: Tensor
    value: Tensor


class EagleLayer(nn.Module):
    """EAGLE-1's head (section 4 of the paper): fc over concat(embedding, feature), then a Llama layer without input norm.

    Row i takes the embedding of token i+1 and the feature of token i, has RoPE position i, and predicts the feature of
    token i+1; the target's LM head turns that into the distribution of token i+2.
    """

    def __init__(self, sizes: EagleSizes) -> None:
        super().__init__()
        d, wide, narrow = sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.sizes = sizes
        self.fc = nn.Linear(2 * d, d)
        self.q_proj = nn.Linear(d, wide, bias=False)
        self.k_proj = nn.Linear(d, narrow, bias=False)
        self.v_proj = nn.Linear(d, narrow, bias=False)
        self.o_proj = nn.Linear(wide, d, bias=False)
        self.post_attention_layernorm = nn.RMSNorm(d, eps=sizes.norm_eps)
        self.gate_proj = nn.Linear(d, sizes.intermediate, bias=False)
        self.up_proj = nn.Linear(d, sizes.intermediate, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate, d, bias=False)
        powers = torch.arange(0, sizes.head_dim, 2, dtype=torch.float64) / sizes.head_dim
        self.register_buffer("frequencies", (sizes.rope_theta**-powers).float(), persistent=False)

    def fuse(self, embedding: Tensor, feature: Tensor) -> Tensor:
        """Returns the layer's input `[B, T, hidden]`."""
        return self.fc(torch.cat((embedding, feature), -1))

    def project(self, x: Tensor, positions: Tensor) -> Projected:
        """Returns rotated query, key and value of rows x `[B, T, hidden]` at `positions` `[T]` or `[B, T]`."""
        s = self.sizes
        angles = positions[..., None].float() * self.frequencies  # [.., T, head_dim / 2]
        cos, sin = angles.cos(), angles.sin()
        if cos.dim() == 3:
            cos, sin = cos[:, None], sin[:, None]
        heads = (*x.shape[:2], -1, s.head_dim)
        query = _rotate(self.q_proj(x).view(heads).transpose(1, 2), cos, sin)
        key = _rotate(self.k_proj(x).view(heads).transpose(1, 2), cos, sin)
        value = self.v_proj(x).view(heads).transpose(1, 2)
        return Projected(query, key, value)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, own: Sequence[Projected] = ()) -> Tensor:
        """Returns `[B, T, heads * head_dim]`; `bias` `[T, keys]` is 0 where a row may look and -inf elsewhere.

        `own` adds keys that only the row of the same index sees: its own earlier draft steps.
        """
        group, scale = self.sizes.heads // self.sizes.kv_heads, self.sizes.head_dim**-0.5
        query = (query * scale).unflatten(1, (-1, group))  # [B, kv_heads, group, T, head_dim]
        scores = query @ key[:, :, None].mT + bias.to(query.dtype)
        single = [(query * p.key[:, :, None]).sum(-1, keepdim=True) for p in own]
        weights = torch.cat((scores, *single), -1).softmax(-1)
        shared, *rest = weights.split([key.shape[2], *[1] * len(own)], -1)
        mixed = shared @ value[:, :, None]
        for weight, p in zip(rest, own, strict=True):
            mixed = mixed + weight * p.value[:, :, None]
        return mixed.flatten(1, 2).transpose(1, 2).flatten(2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Returns the predicted features from the layer's input and its attention output."""
        x = x + self.o_proj(attended)
        inner = self.post_attention_layernorm(x.to(self.post_attention_layernorm.weight.dtype))  # a mixed pair has no fused kernel
        return x + self.down_proj(functional.silu(self.gate_proj(inner)) * self.up_proj(inner))

    def forward(self, embedding: Tensor, feature: Tensor, unroll: int = 1) -> list[Tensor]:
        """Returns the predicted features of `unroll` steps, each `[B, T, hidden]`, for whole sequences.

        Row i of `embedding` belongs to token i+1. Step s feeds row i the embedding of token i+1+s and its own output of
        step s-1, at position i+s; it sees the true-feature rows up to i and the earlier steps of its own row, exactly as
        in serving (HASS; EAGLE-3's training-time test). The last rows of a step wrap around and mean nothing.
        """
        rows = torch.arange(embedding.shape[1], device=embedding.device)
        causal = torch.zeros(len(rows), len(rows), device=rows.device).masked_fill(rows[:, None] < rows, float("-inf"))
        x = self.fuse(embedding, feature)
        first = self.project(x, rows)
        outputs = [self.finish(x, self.attend(first.query, first.key, first.value, causal))]
        steps: list[Projected] = []
        for s in range(1, unroll):
            x = self.fuse(embedding.roll(-s, 1), outputs[-1])
            steps.append(self.project(x, rows + s))
            outputs.append(self.finish(x, self.attend(steps[-1].query, first.key, first.value, causal, steps)))
        return outputs


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position, halves convention (as in Llama): pairs are (j, j + head_dim / 2)."""
    low, high = x.chunk(2, -1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
