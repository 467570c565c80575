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


class Event:
    """A CUDA event whose device has come as far as `done`; the n-th event lies at n * 10 ms."""

    made, done = 0, 0

    def __init__(self) -> None:
        Event.made += 1
        self.number = Event.made

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return self.number <= Event.done

    def synchronize(self) -> None:
        Event.done = max(Event.done, self.number)

    def elapsed_time(self, other: Event) -> float:
        return (other.number - self.number) * 10.0


def test_inside_a_round_the_clock_waits_for_nothing():
    Event.made = Event.done = 0
    clock = Clock(event=Event)
    for name in ("draft", "verify"):
        with clock.phase(name):
            pass
    assert clock.take(wait=False) == {}
    Event.done = 2  # the draft's events have passed
    assert clock.take(wait=False) == {"draft": pytest.approx(0.01)}
    with clock.phase("commit"):
        pass
    assert clock.take(wait=False) == {}
    assert clock.take() == {"verify": pytest.approx(0.01), "commit": pytest.approx(0.01)}
    assert clock.take() == {}
