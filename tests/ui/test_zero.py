"""A host that lends its GPU per call, by a stand-in for its package: arguments travel, Stop works from outside, models load at import."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from apps import LOOPING, SETTINGS

from specviz.build import Spec
from specviz.events import Event, Finished
from specviz.target import Target
from specviz.trace import Trace
from specviz.ui import zero
from specviz.ui.app import App
from specviz.ui.build import build
from specviz.ui.engine import Ask, Engine
from specviz.ui.runs import play

ASK = Ask(LOOPING, Spec("prompt_lookup"), max_new_tokens=12)


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Installs the stand-in; returns the arguments of every call, after a trip through pickle."""
    calls: list[tuple[Any, ...]] = []

    def gpu(duration: int) -> Callable[..., Any]:
        def wrap(function: Callable[..., Iterator[Event]]) -> Callable[..., Iterator[Event]]:
            def call(*arguments: Any) -> Iterator[Event]:
                calls.append(pickle.loads(pickle.dumps(arguments)))
                for event in function(*calls[-1]):
                    yield pickle.loads(pickle.dumps(event))

            return call

        return wrap

    module = ModuleType("spaces")
    module.GPU = gpu  # type: ignore[attr-defined]
    module.__spec__ = sys.modules["json"].__spec__
    monkeypatch.setitem(sys.modules, "spaces", module)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    return calls


def test_it_is_off_elsewhere() -> None:
    assert not zero.enabled()


def test_runs_go_through_the_lent_gpu_and_are_the_same(lent: list[Any], tiny_target: Target) -> None:
    assert zero.enabled()
    engine = Engine(SETTINGS, lambda: tiny_target)
    engine.load_now()
    last = list(play(engine, ASK, plain=True))[-1]
    assert last.stage == "done"
    assert last.trace is not None
    assert last.trace.finished().baseline is not None
    assert len(lent) == 4  # two warm-ups, the run, the plain run
    assert Trace.loads(last.trace.dumps()).emitted() == last.trace.emitted()


def test_stop_ends_the_stream_and_the_recording_from_outside(lent: list[Any], tiny_target: Target) -> None:
    engine = Engine(SETTINGS, lambda: tiny_target)
    engine.load_now()
    trace = Trace()
    for _ in trace.record(engine.events(ASK, stopped=lambda: len(trace.rounds()) >= 1)):
        pass
    end = trace.events[-1]
    assert isinstance(end, Finished)
    assert (end.reason, end.rounds, list(end.tokens)) == ("stopped", 1, trace.emitted())
    assert end.text == tiny_target.decode(trace.emitted())
    assert Trace.loads(trace.dumps()).emitted() == trace.emitted()


def test_the_model_is_loaded_when_the_app_is_built(lent: list[Any], tiny_target: Target) -> None:
    engine = Engine(SETTINGS, lambda: tiny_target)
    build(app=App(SETTINGS, engine))
    assert engine.state.kind == "ready"
