"""Time is charged inside the phases of decoding only, so a slow reader of events never shows up as decoding time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Event = Callable[[], Any]  # makes what torch.cuda.Event(enable_timing=True) is


class Clock:
    """Adds up seconds per phase since the last `take`.

    On CUDA a phase is timed by two events on the device's stream, so reading one waits for the device. Inside a round nothing
    is waited for: what the device has not finished by then is charged to the next `take`.
    """

    def __init__(self, device: torch.device | None = None, event: Event | None = None) -> None:
        self._device = device
        self._event = event or (_cuda_event if device is not None and device.type == "cuda" else None)
        self._seconds: dict[str, float] = {}
        self._pending: deque[tuple[str, Any, Any]] = deque()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charges the time inside the block to `name`; enters inference mode, which must never span a yield."""
        with torch.inference_mode():
            if self._event is None:
                start = time.perf_counter()
                yield
                self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start
                return
            begin = self._mark(self._event())
            yield
            self._pending.append((name, begin, self._mark(self._event())))

    def take(self, wait: bool = True) -> dict[str, float]:
        """Returns the seconds per phase since the last call, and starts anew; without `wait` only those that are known by now."""
        if self._pending and wait:
            self._pending[-1][2].synchronize()
        while self._pending and self._pending[0][2].query():
            name, begin, end = self._pending.popleft()
            self._seconds[name] = self._seconds.get(name, 0.0) + begin.elapsed_time(end) / 1000.0
        seconds, self._seconds = self._seconds, {}
        return seconds

    def _mark(self, event: Any) -> Any:
        """Records the event where the device's work goes: the current stream of ITS device, which need not be the current device."""
        if self._device is not None and self._device.type == "cuda":
            event.record(torch.cuda.current_stream(self._device))
        else:
            event.record()
        return event


def _cuda_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
