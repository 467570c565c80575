"""One thread for everything that computes, because torch is fast in one thread of a process only.

Each Python thread that runs a parallel operation gets helper threads of its own from the OpenMP runtime. With more of them than cores, all of them
sleep between two operations instead of spinning, and a forward of a small model takes half as long again (LOG.md). A web server runs each request in
another thread, so requests hand their work to this one; runs that go on at the same time take turns, step by step.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 5.0  # seconds that the process waits at its end for a step that is going on


class OneThread:
    """Does the work of all threads in a single one, in the order of asking."""

    def __init__(self, name: str) -> None:
        # not an executor: a forgotten iterator may be closed by the garbage collector while this very thread is in the middle of asking for
        # work, and putting something into a SimpleQueue is allowed even then
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._start = threading.Lock()

    def run(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, or raises what it raises; asked for by work in the thread itself, it is done at once."""
        return work() if threading.current_thread() is self._thread else self._ask(work).result()

    def each(self, make: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Yields what the iterator that `make` makes yields; every step of it is taken in the thread, and so is closing it."""
        items, ended = self.run(make), object()
        try:
            while (found := self.run(lambda: next(items, ended))) is not ended:
                yield found  # type: ignore[misc]  # mypy cannot tell the mark of the end apart
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                self._ask(close)  # nobody waits for it, but what is asked for later comes after it

    def _ask(self, work: Callable[[], T]) -> Future[T]:
        if self._thread.ident is None:
            with self._start:
                if self._thread.ident is None:
                    self._thread.start()
                    atexit.register(self._end)
        asked: Future[T] = Future()
        self._asked.put((asked, work))
        return asked

    def _work(self) -> None:
        while (one := self._asked.get()) is not None:
            asked, work = one
            try:
                asked.set_result(work())
            except BaseException as problem:  # noqa: BLE001 (it is raised where the work was asked for, and this thread has to go on)
                asked.set_exception(problem)
            del one, asked, work  # or the last result would stay alive until the next work comes

    def _end(self) -> None:
        self._asked.put(None)
        self._thread.join(PATIENCE)
