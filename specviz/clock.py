"""Time is charged inside the phases of decoding only, so a slow reader of events never shows up as decoding time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Adds up seconds per phase since the last `take`; on CUDA by events that are read at the round's one synchronisation."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._cuda = device is not None and device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._pending: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charges the time inside the block to `name`; enters inference mode, which must never span a yield."""
        with torch.inference_mode():
            if not self._cuda:
                start = time.perf_counter()
                yield
                self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start
                return
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            yield
            end.record()
            self._pending.append((name, begin, end))

    def take(self) -> dict[str, float]:
        """Returns the seconds per phase since the last call, and starts anew."""
        if self._pending:
            torch.cuda.synchronize()
            for name, begin, end in self._pending:
                self._seconds[name] = self._seconds.get(name, 0.0) + begin.elapsed_time(end) / 1000.0
            self._pending = []
        seconds, self._seconds = self._seconds, {}
        return seconds
