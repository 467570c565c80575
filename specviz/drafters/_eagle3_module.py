"""The EAGLE-3 draft layer in its official wiring: fused taps, attention over (embedding, state), a reduced vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from specviz.drafters._layer import DraftLayer, LayerSizes, Projected, causal_bias, normed


@dataclass(frozen=True)
class Eagle3Sizes(LayerSizes):
    """Shape of the draft layer and which variant it is.

    feature               width of one tapped state of the target; `tap_count` of them are read
    taps                  layers whose ENTERING state is read, in the order of concatenation; () = not known yet
    norm_before_residual  the residual is the normed state (vLLM's and speculators' flag), not the plain one
    norm_before_fc        one norm over all taps together; fc_norm: one norm per tap (EAGLE-3.1)
    norm_output           the next step reads the normed output (EAGLE-3.1)
    own_rows              the head has an LM head of its own; False: rows of the target's
    own_embedding         the head has embeddings of its own, `vocab` of them; False: the target's
    residual_embedding    the embedding is added to the residual stream (not an official form); False: only attention reads it,
                          so on a target with few key heads it comes in through few dimensions
    """

    feature: int = 0
    tap_count: int = 3
    taps: tuple[int, ...] = ()
    fc_bias: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    own_rows: bool = True
    own_embedding: bool = False
    residual_embedding: bool = False
    vocab: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return cls(**{**raw, "taps": tuple(raw.get("taps", ()))})


class Eagle3Layer(DraftLayer):
    """EAGLE-3's head (section 3 of the paper): one layer whose attention reads the embedding beside the state.

    Row i takes the embedding of token i+1 and the fused taps of token i, has RoPE position i, and gives the distribution of
    token i+2 over the draft vocabulary. Later steps take the layer's own output instead of fused taps.
    """

    sizes: Eagle3Sizes

    def __init__(self, sizes: Eagle3Sizes) -> None:
        super().__init__()
        d, eps, wide = sizes.hidden, sizes.norm_eps, sizes.feature * sizes.tap_count
        self.fc = nn.Linear(wide, d, bias=sizes.fc_bias)
        self.build(sizes, d if sizes.residual_embedding else 2 * d)
        self.input_layernorm = nn.RMSNorm(d, eps=eps)  # of the embedding
        self.hidden_norm = nn.RMSNorm(d, eps=eps)  # of the state
        self.norm = nn.RMSNorm(d, eps=eps)
        self.embed_proj = nn.Linear(d, d, bias=False) if sizes.residual_embedding else None
        self.input_norm = nn.RMSNorm(wide, eps=eps) if sizes.norm_before_fc else None
        self.fc_norm = nn.ModuleList(nn.RMSNorm(sizes.feature, eps=eps) for _ in range(sizes.tap_count)) if sizes.fc_norm else None
        self.lm_head = nn.Linear(d, sizes.draft_vocab, bias=False) if sizes.own_rows else None
        self.embed_tokens = nn.Embedding(sizes.vocab, d) if sizes.own_embedding else None

    def embed(self, tokens: Tensor, target: Tensor) -> Tensor:
        """Returns embeddings `[.., hidden]` of token ids: the head's own, or rows of the target's table `[vocab, hidden]`."""
        return functional.embedding(tokens, target if self.embed_tokens is None else self.embed_tokens.weight)

    def combine(self, states: Tensor) -> Tensor:
        """Returns `[B, T, hidden]` from the tapped states side by side `[B, T, tap_count * feature]`."""
        if self.input_norm is not None:
            states = normed(self.input_norm, states)
        if self.fc_norm is not None:
            parts = zip(self.fc_norm, states.split(self.sizes.feature, -1), strict=True)
            states = torch.cat([normed(cast(nn.RMSNorm, norm), part) for norm, part in parts], -1)
        fused: Tensor = self.fc(states.to(self.hidden_norm.weight.dtype))
        return fused

    def mix(self, embedding: Tensor, state: Tensor) -> Tensor:
        """Returns the residual stream `[B, T, hidden]`: the state, with the embedding where the head is of that form."""
        if self.embed_proj is None:
            return state
        mixed: Tensor = state + self.embed_proj(normed(self.input_layernorm, embedding))
        return mixed

    def read(self, embedding: Tensor, x: Tensor) -> Tensor:
        """Returns what attention reads, `[B, T, 2 * hidden]` in the official form."""
        state = normed(self.hidden_norm, x)
        return state if self.embed_proj is not None else torch.cat((normed(self.input_layernorm, embedding), state), -1)

    def finish(self, residual: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's output from the state it started from and its attention output."""
        if self.sizes.norm_before_residual:
            residual = normed(self.hidden_norm, residual)
        return super().finish(residual, attended)

    def feedback(self, output: Tensor) -> Tensor:
        """Returns the state that the next draft step starts from."""
        return normed(self.norm, output) if self.sizes.norm_output else output

    def predict(self, output: Tensor, rows: Tensor | None = None) -> Tensor:
        """Returns logits `[.., draft vocab]`; `rows` `[draft vocab, hidden]` is needed when the head has none of its own."""
        final = normed(self.norm, output)
        if self.lm_head is not None:
            logits: Tensor = self.lm_head(final)
            return logits
        assert rows is not None, "a head without own rows needs the target's"
        return final.to(rows.dtype) @ rows.T

    def forward(self, embedding: Tensor, states: Tensor, unroll: int = 1) -> list[Tensor]:
        """Returns the layer's outputs of `unroll` steps, each `[B, T, hidden]`, for whole sequences; `predict` makes logits of them.

        Row i of `embedding` belongs to token i+1. Step s feeds row i the embedding of token i+1+s and its own output of step
        s-1, at position i+s; it sees the true rows up to i and the earlier steps of its own row (training-time test, section
        3.2). The last rows of a step wrap around and mean nothing.
        """
        positions = torch.arange(embedding.shape[1], device=embedding.device)
        causal = causal_bias(positions)
        x = self.mix(embedding, self.combine(states))
        first = self.project(self.read(embedding, x), positions)
        outputs = [self.finish(x, self.attend(first.query, first.key, first.value, causal))]
        steps: list[Projected] = []
        for s in range(1, unroll):
            later = embedding.roll(-s, 1)
            x = self.mix(later, self.feedback(outputs[-1]))
            steps.append(self.project(self.read(later, x), positions + s))
            outputs.append(self.finish(x, self.attend(steps[-1].query, first.key, first.value, causal, steps)))
        return outputs
