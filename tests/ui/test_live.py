"""The live page's handlers, called as functions on a tiny target: rounds are streamed, nothing on screen is ever lost."""

from __future__ import annotations

import gzip
import itertools
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from apps import LOOPING, SETTINGS, live_page, live_values, make_app, request

from specviz.build import Spec, parse_spec
from specviz.errors import BadInput, Missing, SpecvizError
from specviz.events import Started, Verified
from specviz.sampling import Sampling
from specviz.target import Target
from specviz.trace import Trace
from specviz.ui import notes, runs
from specviz.ui.engine import Ask, Engine
from specviz.ui.files import FILES_KEPT, Downloads
from specviz.ui.pages.live import LivePage
from specviz.ui.runs import play
from specviz.ui.stops import SESSIONS_KEPT, Stops

ASK = Ask(LOOPING, Spec("prompt_lookup"), max_new_tokens=12)


@pytest.fixture(scope="module")
def live(tiny_target: Target) -> LivePage:
    return live_page(make_app(tiny_target))


@pytest.fixture
def engine(tiny_target: Target) -> Engine:
    return make_app(tiny_target).engine


def text(html: str) -> str:
    return re.sub("<[^>]+>", "", html)


def run(live: LivePage, session: str = "one", **changed: Any) -> list[dict[Any, Any]]:
    live.buttons.arm(request(session))
    return list(live.decode(live_values(live, **changed), request(session)))


@pytest.fixture
def every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds of a tiny target take no time, so a picture every FRAME seconds would show the first and the last alone."""
    monkeypatch.setattr(runs, "FRAME", 0.0)


def test_pictures_come_at_most_once_in_a_while_and_leave_no_round_out(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(1.0, runs.FRAME / 4)
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: next(now)))
    engine.load_now()
    trace = Trace()
    steps = [step for step in runs.drafting(engine, replace(ASK, max_new_tokens=40), trace, lambda: False) if step.trace]
    drawn = [int(step.message.split(":")[0].removeprefix("Round ")) for step in steps]
    total = len(trace.rounds())
    assert (drawn[0], drawn[-1]) == (1, total)
    assert len(drawn) < total / 2
    sent = [{*range(after - step.newest, after)} for step, after in zip(steps, drawn, strict=True)]
    for earlier, missed, later in zip(sent, sent[1:], sent[2:], strict=False):
        assert missed - earlier <= later  # a browser that misses one picture gets its rounds with the next
    assert set().union(*sent) == set(range(total))


def test_a_picture_of_many_rounds_stays_small(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST_ROUNDS", 3)
    engine.load_now()
    steps = list(runs.drafting(engine, replace(ASK, max_new_tokens=40), Trace(), lambda: False))
    assert [step.newest for step in steps if step.trace] == [1, 3]


def test_a_run_streams_every_round_and_ends_with_a_measured_speed_up(live: LivePage, every_round: None) -> None:
    updates = run(live)
    trace: Trace = updates[-1][live.kept]
    streamed = [update[live.player] for update in updates if live.player in update]
    assert [view["total"] for view in streamed] == list(range(1, len(trace.rounds()) + 1))
    assert all(len(view["rounds"]) <= 4 for view in streamed)
    assert trace.finished().baseline["tokens"] == 12
    final = live.finish(trace)
    assert final[live.player]["summary"]["speedup"] > 0
    assert "The text is the same, token for token." in text(final[live.speed])
    assert set(live.charts.places.values()) <= set(final)
    assert Trace.load(final[live.download]["value"]).emitted() == trace.emitted()


def test_without_the_baseline_no_speed_up_is_claimed(live: LivePage) -> None:
    trace = run(live, plain=False)[-1][live.kept]
    assert trace.finished().baseline is None
    assert live.finish(trace)[live.speed] == ""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": " \n"}, "The prompt is empty"),
        ({"prompt": None}, "The prompt is empty"),
        ({"prompt": "word " * 20_000}, "100,000 characters"),
        ({"prompt": "word " * 500}, "this app reads at most 200"),
        ({"length": 65}, "SPECVIZ_MAX_NEW_TOKENS"),
        ({"length": 0}, "0 new tokens"),
        ({"length": float("nan")}, "max_new_tokens=nan"),
        ({"seed": None}, "seed=None"),
        ({"seed": -1}, "seed=-1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": 1e9}, "temperature"),
        ({"drafter": "nobody"}, "No drafter 'nobody'"),
        ({"rule": None}, "No None in acceptance"),
        ({"drafter": "eagle", "shape": "dynamic"}, "No eagle head"),
        ({"drafter": "eagle", "shape": "pyramid"}, "No shape 'pyramid'"),
    ],
)
def test_what_cannot_run_is_refused_in_words_and_leaves_the_screen(live: LivePage, changed: dict[str, Any], expected: str) -> None:
    updates = run(live, **changed)
    assert expected in text(updates[-1][live.buttons.message]).replace("&#x27;", "'")
    assert 'role="alert"' in updates[-1][live.buttons.message]
    assert not any(live.player in update for update in updates)
    assert live.finish(updates[-1][live.kept]) == gr.skip()


def test_stop_ends_after_the_round_and_keeps_what_was_decoded(live: LivePage, every_round: None) -> None:
    live.buttons.arm(request())
    seen = []
    for update in live.decode(live_values(live, length=60), request()):
        seen.append(update)
        if sum(live.player in one for one in seen) == 3:
            live.buttons.ask_stop(request())
    trace = seen[-1][live.kept]
    assert trace.finished().reason == "stopped"
    assert 3 <= len(trace.rounds()) <= 4
    assert "Stopped" in text(seen[-1][live.buttons.message])
    assert live.finish(trace)[live.player]["status"] == "stopped"


def test_stop_while_waiting_for_a_turn_runs_nothing(live: LivePage) -> None:
    live.buttons.arm(request())
    live.buttons.ask_stop(request())
    updates = list(live.decode(live_values(live), request()))
    assert "before the first round" in text(updates[-1][live.buttons.message])
    assert not any(live.player in update for update in updates)


def test_a_new_run_is_not_stopped_by_an_old_stop_nor_by_another_session(live: LivePage) -> None:
    live.buttons.ask_stop(request("one"))
    live.buttons.ask_stop(request("two"))
    assert run(live, "one")[-1][live.kept].finished().reason in ("length", "eos")


def test_two_runs_at_once_do_not_mix(live: LivePage) -> None:
    done: dict[str, Trace] = {}

    def go(session: str, seed: int) -> None:
        done[session] = run(live, session, seed=seed, temperature=0.9, plain=False)[-1][live.kept]

    threads = [threading.Thread(target=go, args=(f"s{seed}", seed)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (1, 2, 3):
        alone = run(live, "alone", seed=seed, temperature=0.9, plain=False)[-1][live.kept]
        assert done[f"s{seed}"].emitted() == alone.emitted()
        assert done[f"s{seed}"].started().meta["seed"] == seed


def test_an_error_in_the_middle_keeps_the_rounds_before_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine.events

    def breaking(ask: Ask, **options: Any) -> Any:
        for event in whole(ask, **options):
            yield event
            if isinstance(event, Verified) and event.round == 2 and options.get("detail", True):
                raise RuntimeError("the machine gave up")

    monkeypatch.setattr(engine, "events", breaking)
    steps = list(play(engine, ASK, plain=False))
    assert steps[-1].stage == "failed"
    assert "the machine gave up" in steps[-1].message
    assert len(steps[-1].trace.rounds()) == 3


def test_an_error_in_the_first_round_replaces_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine.events

    def refusing(ask: Ask, **options: Any) -> Any:
        for event in whole(ask, **options):
            if isinstance(event, Verified):
                raise BadInput("this shape needs deterministic children")
            yield event

    monkeypatch.setattr(engine, "events", refusing)
    monkeypatch.setattr(engine, "warm_up", lambda ask: True)
    last = list(play(engine, ASK, plain=False))[-1]
    assert (last.stage, last.message, last.trace) == ("failed", "this shape needs deterministic children", None)


def test_a_run_waits_for_a_model_that_still_loads_and_can_be_stopped_there(tiny_target: Target) -> None:
    gate = threading.Event()

    def load() -> Target:
        gate.wait(20)
        return tiny_target

    slow = Engine(SETTINGS, load)
    steps = play(slow, ASK, plain=False)
    assert next(steps).stage == "waiting"
    assert slow.state.kind == "loading"
    gate.set()
    assert list(steps)[-1].stage == "done"
    never = Engine(SETTINGS, lambda: time.sleep(3) or tiny_target)
    assert [step.stage for step in play(never, ASK, plain=False, stopped=lambda: True)] == ["stopped"]


def test_a_model_that_cannot_be_loaded_says_why_and_can_be_tried_again(tiny_target: Target) -> None:
    outcomes: list[Callable[[], Target]] = [lambda: (_ for _ in ()).throw(Missing("No weights here. Run `make weights`.")), lambda: tiny_target]
    engine = Engine(SETTINGS, lambda: outcomes.pop(0)())
    assert engine.wait(5).kind == "error"
    step = list(play(engine, ASK, plain=False))[-1]
    assert (step.stage, "make weights" in step.message) == ("failed", True)
    assert "make weights" in notes.of_engine(engine.state)
    engine.start_unless_failed()
    assert engine.state.kind == "error"
    engine.start()
    assert engine.wait(5).kind == "ready"
    assert "tiny-llama on CPU" in engine.state.text


def test_drafters_share_what_they_loaded_and_keep_their_own_shape(engine: Engine) -> None:
    first = engine.drafter(parse_spec("prompt_lookup:length=3"))
    assert engine.drafter(parse_spec("prompt_lookup:length=3")) is first
    assert engine.drafter(parse_spec("prompt_lookup:length=4")) is not first
    with pytest.raises(BadInput, match="nobody"):
        parse_spec("nobody")
    with pytest.raises(BadInput, match="no knob 'colour'"):
        engine.drafter(Spec("prompt_lookup", None, {"colour": 1}))


def test_warm_up_happens_once_per_drafter(engine: Engine) -> None:
    assert engine.warm_up(ASK) is True
    assert engine.warm_up(replace(ASK, sampling=Sampling(seed=3))) is False
    assert engine.warm_up(ASK.plain()) is True


def test_recorded_runs_and_files_open(live: LivePage, tmp_path: Path) -> None:
    for name in live.app.recorded():
        shown = live.show_recorded(name)
        assert shown[live.player]["total"] > 0
        assert shown[live.notice] == ""
        assert live.recorded not in shown
    trace = run(live, plain=False)[-1][live.kept]
    opened = live.open_file(str(trace.save(tmp_path / "mine.jsonl")))
    assert opened[live.player]["total"] == len(trace.rounds())
    assert "Opened file" in opened[live.origin]


def test_the_picker_names_no_recorded_run_beside_another_one(live: LivePage, tmp_path: Path) -> None:
    trace = run(live, plain=False)[-1][live.kept]
    label, nothing = live.recorded.choices[0]
    assert label == "Recorded runs"
    assert live.finish(trace)[live.recorded] == nothing
    assert live.open_file(str(trace.save(tmp_path / "mine.jsonl")))[live.recorded] == nothing
    assert live.show_recorded(nothing) == gr.skip()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"not json\n", "not valid JSON"),
        ("a.jsonl", b'{"hello": 1}\n', "is not a specviz trace"),
        ("a.jsonl", b'{"specviz_trace": 999}\n{"end": 0}\n', "newer specviz"),
        ("a.jsonl.gz", b"\x1f\x8b broken", "damaged gzip"),
        ("a.jsonl", b"\xff\xfe", "not text"),
        ("a.jsonl.gz", gzip.compress(b"x" * (2 << 20)), "unpacks to more than 1 MiB"),
        ("a.jsonl", b"x" * (2 << 20), "larger than 1 MiB"),
    ],
)
def test_a_bad_file_is_named_and_leaves_the_screen(live: LivePage, tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    updates = live.open_file(str(path))
    assert set(updates) == {live.notice}
    assert expected in text(updates[live.notice]).replace("&#x27;", "'")


def test_a_file_that_reads_but_cannot_be_drawn_leaves_the_screen(live: LivePage, tmp_path: Path) -> None:
    trace = run(live, plain=False)[-1][live.kept]
    odd = Trace([replace(event, meta={"drafter": 7, "sampling": [1], "rule": None}) if isinstance(event, Started) else event for event in trace.events])
    updates = live.open_file(str(odd.save(tmp_path / "odd.jsonl")))
    assert live.notice in updates
    assert live.player not in updates or updates[live.player]["total"] > 0


def test_a_name_that_is_no_recorded_run_is_refused(live: LivePage) -> None:
    assert set(live.show_recorded("../../etc/passwd")) == {live.notice}


def test_notes_escape_what_came_from_outside() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    assert "<img" not in notes.message(hostile, "error")
    assert "<img" not in notes.column("A", hostile)


def test_a_slow_setting_says_so_and_why(live: LivePage) -> None:
    trace = run(live)[-1][live.kept]
    baseline = dict(trace.finished().baseline)
    slow = {**baseline, "seconds": {name: value / 50 for name, value in baseline["seconds"].items()}, "times": [t / 50 for t in baseline["times"]]}
    said = text(notes.of_speed(trace.with_baseline(slow)))
    assert said.startswith("Slower than plain decoding")
    assert "plain steps" in said


def test_downloads_are_bounded(live: LivePage) -> None:
    trace, downloads = run(live, plain=False)[-1][live.kept], Downloads()
    paths = [downloads.save(trace) for _ in range(FILES_KEPT + 3)]
    assert sum(path.exists() for path in paths) == FILES_KEPT
    assert paths[-1].name == "specviz-prompt-lookup-seed0.jsonl.gz"


def test_stops_are_bounded() -> None:
    stops = Stops()
    for number in range(SESSIONS_KEPT + 5):
        stops.stop(str(number))
    assert not stops.asked("0")
    assert stops.asked(str(SESSIONS_KEPT + 4))


def test_settings_name_what_is_wrong() -> None:
    from specviz.settings import VARIABLES, Settings

    assert Settings.from_env({}) == Settings()
    assert {variable.field for variable in VARIABLES} == set(Settings.__dataclass_fields__)
    assert Settings.from_env({"SPECVIZ_PORT": "0"}).port == 0
    assert Settings.from_env({"GRADIO_SERVER_NAME": "0.0.0.0"}).host == "0.0.0.0"
    for value in ("-1", "x", "70000", "1e3"):
        with pytest.raises(SpecvizError, match="SPECVIZ_PORT"):
            Settings.from_env({"SPECVIZ_PORT": value})


@pytest.mark.parametrize(("host", "allowed"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_a_checkpoint_folder_is_named_on_this_machine_only(tiny_target, tmp_path, host, allowed):
    engine = make_app(tiny_target, settings=replace(SETTINGS, host=host)).engine
    with pytest.raises(Missing if allowed else BadInput, match="No eagle head" if allowed else "serves this machine alone"):
        engine.drafter(parse_spec(f"eagle:checkpoint={tmp_path}"))
