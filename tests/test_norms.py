"""Norms in one call: the same numbers in every dtype, and what is no such norm stays and is named."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from specviz import norms
from specviz.norms import FusedNorm, difference, fuse_norms, looks_like_one
from specviz.target import Target


class Rms(nn.Module):
    """Llama's norm, with what a test makes different about it."""

    def __init__(self, width: int = 16, eps: float = 1e-5, extra: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.0, 2.0, width))
        self.variance_epsilon, self.extra = eps, extra

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.weight + self.extra) * x.to(hidden_states.dtype)


class Gated(Rms):
    def forward(self, hidden_states: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(hidden_states if gate is None else hidden_states * gate)


class Biased(Rms):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(16))


def names(model: nn.Module) -> list[str]:
    return [type(module).__name__ for module in model.modules() if "Norm" in type(module).__name__]


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral"])
def test_a_model_gives_the_same_logits(make_target, text_ids, kind):
    model = make_target(kind, attention="tree").model
    fused = deepcopy(model)
    assert fuse_norms(fused) is None
    assert set(names(fused)) == {"FusedNorm"}
    assert len(names(fused)) == len(names(model))
    assert list(fused.state_dict()) == list(model.state_dict())
    ids = torch.tensor([text_ids(20)])
    with torch.inference_mode():
        a, b = model(input_ids=ids).logits, fused(input_ids=ids).logits
    assert float((a - b).abs().max() / a.abs().max()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
def test_the_numbers_are_those_of_the_module_in_its_own_dtype(dtype, scale):
    norm = Rms().to(dtype)
    x = (torch.randn(5, 3, 16, generator=torch.Generator().manual_seed(1)) * scale).to(dtype)
    with torch.inference_mode():
        expected, found = norm(x), FusedNorm(norm)(x)
    assert found.dtype == expected.dtype == dtype
    assert torch.allclose(found, expected, rtol=max(1e-5, 2 * torch.finfo(dtype).eps), atol=1e-7)


@pytest.mark.parametrize("norm", [Rms(extra=1.0), Rms(extra=1e-3)])
def test_a_norm_that_means_something_else_stays_and_is_named(norm):
    model = nn.Sequential(Rms(), norm, nn.Linear(16, 16), deepcopy(norm))
    told = fuse_norms(model)
    assert [type(module).__name__ for module in model] == ["FusedNorm", "Rms", "Linear", "Rms"]
    assert "2 x Rms (torch's rms_norm is off by" in told


def test_another_epsilon_is_seen():
    norm, other = Rms(), Rms(eps=2e-5)
    assert "off by" in difference(norm, FusedNorm(other))


@pytest.mark.parametrize("module", [Gated(), Biased(), nn.LayerNorm(16), nn.RMSNorm(16), nn.Linear(16, 16), FusedNorm(Rms())])
def test_what_takes_more_than_one_input_or_weight_is_no_candidate(module):
    assert not looks_like_one(module)


def test_a_norm_that_cannot_be_compared_stays():
    class Refusing(Rms):
        def forward(self, hidden_states):
            raise RuntimeError("only for images")

    assert "only for images" in fuse_norms(nn.Sequential(Refusing()))


def test_a_loaded_model_has_them_and_a_note_names_those_that_stay(tiny_folder, monkeypatch):
    target = Target.load(str(tiny_folder))
    assert set(names(target.model)) == {"FusedNorm"}
    assert not target.notes
    monkeypatch.setattr(norms, "difference", lambda norm, fused: "off by 1")
    target = Target.load(str(tiny_folder))
    assert set(names(target.model)) == {"LlamaRMSNorm"}
    assert "7 x LlamaRMSNorm (off by 1)" in target.notes[0]
