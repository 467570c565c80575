from __future__ import annotations

import time

import pytest
import torch

from specviz.clock import Clock


def test_phases_add_up_until_they_are_taken():
    clock = Clock()
    for _ in range(2):
        with clock.phase("draft"):
            time.sleep(0.01)
    with clock.phase("verify"):
        pass
    time.sleep(0.05)  # between the phases: a slow reader of events
    seconds = clock.take()
    assert set(seconds) == {"draft", "verify"}
    assert 0.02 <= seconds["draft"] < 10
    assert seconds["verify"] < seconds["draft"]
    assert clock.take() == {}


def test_inference_mode_lasts_as_long_as_the_phase():
    clock = Clock()
    with clock.phase("draft"):
        assert torch.is_inference_mode_enabled()
    assert not torch.is_inference_mode_enabled()
    with pytest.raises(ValueError, match="inside"), clock.phase("draft"):
        raise ValueError("inside")
    assert not torch.is_inference_mode_enabled()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_events_are_read_when_taken():
    clock = Clock(torch.device("cuda"))
    with clock.phase("verify"):
        torch.zeros(8, device="cuda").sum()
    assert clock.take()["verify"] > 0
