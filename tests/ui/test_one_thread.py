"""All computing of the app happens in one thread, whoever asks: torch is slower as soon as two threads of a process have helpers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from apps import LOOPING, SETTINGS

from specviz.build import parse_spec
from specviz.errors import BadInput
from specviz.events import Finished
from specviz.ui.engine import Ask, Engine
from specviz.ui.one_thread import OneThread


def here() -> int:
    return threading.get_ident()


def test_work_of_all_threads_is_done_in_one() -> None:
    work = OneThread("test")
    with ThreadPoolExecutor(4) as askers:
        found = set(askers.map(lambda _: work.run(here), range(20)))
    assert len(found) == 1
    assert found != {here()}


def test_work_that_asks_for_work_does_not_wait_for_itself() -> None:
    work = OneThread("test")
    assert work.run(lambda: work.run(here) == here())
    assert work.run(lambda: list(work.each(lambda: iter([1, 2])))) == [1, 2]


def test_an_iterator_is_stepped_and_closed_in_the_thread() -> None:
    seen: list[int] = []

    def numbers() -> Iterator[int]:
        try:
            for number in range(5):
                seen.append(here())
                yield number
        finally:
            seen.append(here())

    work = OneThread("test")
    assert list(work.each(numbers)) == [0, 1, 2, 3, 4]
    part = work.each(numbers)
    assert next(part) == 0
    part.close()
    assert {work.run(here)} == set(seen)
    assert len(seen) == 8


def test_what_work_raises_is_raised_where_it_was_asked_for_and_the_thread_goes_on() -> None:
    work = OneThread("test")

    def broken() -> Iterator[int]:
        yield 1
        raise BadInput("no more")

    steps = work.each(broken)
    assert next(steps) == 1
    with pytest.raises(BadInput, match="no more"):
        next(steps)
    assert work.run(lambda: 2) == 2


def test_an_iterator_that_the_garbage_collector_closes_hangs_nobody() -> None:
    work = OneThread("test")

    def endless() -> Iterator[int]:
        while True:
            yield 1

    def abandon() -> None:
        steps = work.each(endless)
        next(steps)
        circle: list[Any] = [steps]
        circle.append(circle)

    def user(_: int) -> int:
        for _ in range(400):
            abandon()
        return work.run(lambda: 1)

    before = gc.get_threshold()
    gc.set_threshold(7, 2, 2)  # so that it comes in the middle of everything
    askers = ThreadPoolExecutor(4)
    try:
        assert sum(askers.map(user, range(4), timeout=60)) == 4
    finally:
        gc.set_threshold(*before)
        askers.shutdown(wait=False, cancel_futures=True)


def test_two_iterators_take_turns() -> None:
    work, order = OneThread("test"), []
    one, other = (work.each(lambda name=name: (order.append(name) for _ in range(2))) for name in "ab")  # type: ignore[misc]
    for _ in range(2):
        next(one)
        next(other)
    assert order == ["a", "b", "a", "b"]


def test_the_app_computes_in_one_thread_for_all_its_users(tiny_target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    run = tiny_target._run
    monkeypatch.setattr(tiny_target, "_run", lambda *args, **options: (threads.add(here()), run(*args, **options))[1])
    engine = Engine(SETTINGS, lambda: tiny_target)
    assert engine.wait(60).kind == "ready"
    ask = Ask(LOOPING, parse_spec("prompt_lookup"), max_new_tokens=12)
    with ThreadPoolExecutor(3) as users:
        runs = list(users.map(lambda _: list(engine.events(ask)), range(3)))
    texts = {tuple(event.tokens) for run in runs for event in run if isinstance(event, Finished)}
    assert len(threads) == len(texts) == 1
    engine.measure()
    assert len(threads) == 1
    assert here() not in threads
