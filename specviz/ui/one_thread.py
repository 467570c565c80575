"""One thread for everything that computes, because torch is fast in one thread of a process only.

Each Python thread that runs a parallel operation gets helper threads of its own from the OpenMP runtime. With more of them than cores, all of them
sleep between two operations instead of spinning, and a forward of a small model takes half as long again (LOG.md). A web server runs each request in
another thread, so requests hand their work to this one; runs that go on at the same time take turns, step by step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class OneThread:
    """Does the work of all threads in a single one, in the order of asking."""

    def __init__(self, name: str) -> None:
        self._thread: threading.Thread | None = None
        self._pool = ThreadPoolExecutor(1, name, initializer=self._begin)

    def _begin(self) -> None:
        self._thread = threading.current_thread()

    def run(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, or raises what it raises; asked for by work in the thread itself, it is done at once."""
        return work() if threading.current_thread() is self._thread else self._pool.submit(work).result()

    def each(self, make: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Yields what the iterator that `make` makes yields; every step of it is taken in the thread, and so is closing it."""
        items, ended = self.run(make), object()
        try:
            while (found := self.run(lambda: next(items, ended))) is not ended:
                yield found  # type: ignore[misc]  # mypy cannot tell the mark of the end apart
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                self.run(close)
