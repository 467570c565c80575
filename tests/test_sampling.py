from __future__ import annotations

import math

import pytest
import torch

from specviz.errors import BadInput
from specviz.sampling import Sampling, Uniform, draw, temper, warp

LOGITS = torch.randn(6, 500, generator=torch.Generator().manual_seed(3)) * 3


@pytest.mark.parametrize("given", [{"temperature": -1}, {"temperature": math.nan}, {"temperature": 101}, {"top_p": 0}, {"top_p": 1.5}, {"top_p": math.nan},
                                   {"top_k": -1}, {"seed": -1}, {"seed": 2**63}])  # fmt: skip
def test_what_is_out_of_range_is_refused(given):
    with pytest.raises(BadInput, match=next(iter(given))):
        Sampling(**given)


def test_temperature_zero_is_one_hot_at_the_first_largest():
    p = warp(torch.tensor([[1.0, 3.0, 3.0, 0.0]]), Sampling())
    assert p.tolist() == [[0.0, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("temperature", [1e-310, 1e-9, 0.3, 1.0, 100.0])
def test_every_temperature_gives_a_distribution(temperature):
    p = warp(torch.cat([LOGITS, LOGITS.new_full((1, 500), -math.inf).index_fill(1, torch.tensor([7]), 4.0)]), Sampling(temperature))
    assert torch.allclose(p.sum(-1), torch.ones(7, dtype=torch.float64))
    assert float(p[6, 7]) == 1.0


@pytest.mark.parametrize(
    "sampling", [Sampling(0.7), Sampling(1.0, top_k=20), Sampling(1.3, top_p=0.6), Sampling(0.8, top_p=0.9, top_k=50), Sampling(1.0, top_p=1e-6)]
)
def test_warping_equals_transformers_own(sampling):
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    steps = [TemperatureLogitsWarper(sampling.temperature)]
    steps += [TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    steps += [TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
    expected = LogitsProcessorList(steps)(None, LOGITS.double()).softmax(-1)
    assert torch.allclose(warp(LOGITS, sampling), expected, atol=1e-12)


def test_top_p_beyond_the_few_largest_sorts_everything():
    flat = torch.zeros(1, 5000)
    flat[0, :10] = 0.1
    kept = warp(flat, Sampling(1.0, top_p=0.9))
    assert float(kept.sum()) == pytest.approx(1.0)
    assert int((kept > 0).sum()) == 5000  # exact ties at the edge stay together


def test_rows_are_warped_one_by_one_as_together():
    sampling = Sampling(0.9, top_p=0.8, top_k=40)
    together = warp(LOGITS, sampling)
    assert all(torch.equal(together[i], warp(LOGITS[i : i + 1], sampling)[0]) for i in range(6))


def test_temper_is_the_softmax_at_a_temperature_and_of_the_raw_logits_at_zero():
    assert torch.allclose(temper(LOGITS, 0.5).softmax(-1), (LOGITS.double() / 0.5).softmax(-1))
    assert torch.allclose(temper(LOGITS, 0.0).softmax(-1), LOGITS.double().softmax(-1))


def test_uniforms_depend_on_their_key_alone():
    u = Uniform(5)
    assert u(10, "token") == Uniform(5)(10, "token") == u(10, "token", 0)
    others = {Uniform(6)(10, "token"), u(11, "token"), u(10, "accept"), u(10, "token", 1), u(10, "token")}
    assert len(others) == 5
    assert all(0.0 <= v < 1.0 for v in others)


def test_uniforms_are_uniform():
    values = torch.tensor([Uniform(seed)(position, "token") for seed in range(20) for position in range(500)])
    counts = torch.histc(values, 20, 0.0, 1.0)
    assert float(((counts - 500) ** 2 / 500).sum()) < 50  # chi-square, 19 degrees of freedom: 1e-4


def test_draw_inverts_the_cumulative_sum_in_vocabulary_order():
    p = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0], dtype=torch.float64)
    assert [draw(p, u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53)] == [1, 1, 3, 3, 4, 4]
    assert draw(p * 7, 0.5) == 3  # not normalised: the same


def test_draw_needs_mass():
    with pytest.raises(BadInput, match="no mass"):
        draw(torch.zeros(4), 0.5)
