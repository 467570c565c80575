"""`auto` on the page: one tick for what the machine decides, a word before it is measured, and the button of the cost chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from apps import LOOPING, SETTINGS, live_page, live_values, make_app, request
from made_costs import reported_head

from specviz.build import Spec
from specviz.profiling import measure
from specviz.registry import AUTO
from specviz.target import Target
from specviz.ui import choices, controls, notes, sweep
from specviz.ui.choices import Choice
from specviz.ui.controls import Method
from specviz.ui.engine import Ask
from specviz.ui.runs import MEASURING, play


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_target: Target, random_heads: Callable[[str], Path]) -> Path:
    """A models folder of the test's own, with an eagle head that has a report."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(measure, "QUICK", measure.Plan(sizes=(1, 4, 16), batches=(), batch_sizes=(), budgets=(4,), cached=8, repeats=2, quick=True))
    (tmp_path / "models" / tiny_target.name).mkdir(parents=True)
    return reported_head(tmp_path / "models" / tiny_target.name / "eagle", random_heads("eagle"), tiny_target, {4: 3.9})


def method(target: str) -> Method:
    with gr.Blocks():
        made = Method(target, "test")
        made.add_advanced()
        made.wire()
    return made


def test_a_head_with_a_report_begins_with_the_automatic_size(tiny_target: Target, models: Path) -> None:
    page, key = method(tiny_target.name), ("shape", "dynamic")
    assert page.autos[key].value is True
    assert page.by_hand[key].visible is False
    (models / "report.json").unlink()
    assert method(tiny_target.name).autos[key].value is False
    updates = page.new_drafter("eagle", None, "greedy", 0.0)
    assert (updates[page.autos[key]]["value"], updates[page.by_hand[key]]["visible"]) == (False, True)


def test_one_tick_stands_for_all_that_the_machine_decides(tiny_target: Target) -> None:
    page = method(tiny_target.name)
    values: dict[Any, Any] = {part: part.value for part in page.inputs}
    auto = {name for (kind, of, name), value in page.knob_values(values).items() if value == AUTO}
    assert auto == {"nodes", "depth", "top_k", "stop_below"}
    assert all(word in controls.AUTO_INFO.lower() for word in ("nodes", "depth", "children", "stop"))
    values[page.autos["shape", "dynamic"]] = False
    assert AUTO not in page.knob_values(values).values()


def test_an_axis_of_the_compare_page_offers_auto() -> None:
    axis = sweep.axes(Choice("eagle", "dynamic", "greedy"))["shape.nodes"]
    assert axis.values[-1] == AUTO
    varied = sweep.vary(sweep.Setting(Choice("eagle", "dynamic", "greedy"), 0.0, {}), "shape.nodes", AUTO)
    assert varied.knobs["shape", "dynamic", "nodes"] == AUTO


def test_a_page_says_that_it_measures_before_it_does(tiny_target: Target) -> None:
    engine = make_app(tiny_target).engine
    ask = Ask(LOOPING, Spec("eagle", "dynamic", {}, {"nodes": AUTO}), max_new_tokens=6)
    first = [step.message for step in play(engine, ask, plain=False)]
    assert MEASURING in first
    done = list(play(engine, ask, plain=False))
    assert MEASURING not in [step.message for step in done]
    told = done[-1].trace.started().meta["drafter"]["budget"]
    assert told["asked"] == "auto"
    said = notes.of_origin("Your run.", done[-1].trace)
    assert (f"{told['nodes']} nodes a round were chosen" if told["nodes"] > 1 else "Plain decoding was chosen") in said
    assert "auto" not in said
    hot = replace(ask, sampling=choices.make_sampling(1.0, 1.0, 0, 0), rule="rejection")
    assert MEASURING in [step.message for step in play(engine, hot, plain=False)]


def test_a_hostile_budget_is_shown_as_text() -> None:
    from recorded import round_of, trace_of

    trace = trace_of(round_of(0, (-1,), ()), drafter={"name": "x", "budget": {"nodes": "<img src=x>", "why": "<script>"}})
    assert "<img" not in notes.of_origin("Opened file.", trace)
    assert "<script" not in notes.of_origin("Opened file.", trace)


def test_the_cost_chart_s_button_measures_and_goes(tiny_target: Target) -> None:
    live = live_page(make_app(tiny_target))
    live.buttons.arm(request())
    trace = list(live.decode(live_values(live, drafter="prompt_lookup", shape=None, plain=False), request()))[-1][live.kept]
    assert live.finish(trace)[live.measuring.button]["visible"] is True
    steps = list(live.measuring.measure(trace))
    assert "some seconds" in steps[0][live.measuring.message]
    assert "times as long" in steps[-1][live.measuring.message]
    assert steps[-1][live.measuring.button]["visible"] is False
    assert "cost C(N)" in [line.name for line in steps[-1][live.charts.places["cost"]].data]


def test_the_button_waits_for_the_model(tiny_target: Target) -> None:
    from specviz.ui.app import App
    from specviz.ui.engine import Engine

    live = live_page(App(SETTINGS, Engine(SETTINGS, load=lambda: tiny_target)))
    (only,) = live.measuring.measure(None)
    assert "not ready" in only[live.measuring.message]
