"""Controls: made from the registries, only what applies is shown, and nothing that cannot run gets through."""

from __future__ import annotations

import math
from typing import Any

import gradio as gr
import pytest
from head_reports import full_report, install

from specviz.build import Spec
from specviz.errors import BadInput, SpecvizError
from specviz.registry import Knob
from specviz.shapes._files import ShapeFile, write_shape
from specviz.ui import choices, sweep
from specviz.ui.choices import Choice
from specviz.ui.controls import Method, component
from specviz.ui.presets import PRESETS


@pytest.fixture
def method() -> Method:
    with gr.Blocks():
        made = Method("no-such-target", "test")
        made.add_advanced()
        made.wire()
    return made


def visible(updates: dict[Any, Any], method: Method) -> set[tuple[str, str]]:
    return {(kind, name) for (kind, name, _), group in method.groups.items() if updates[group]["visible"]}


@pytest.mark.parametrize(
    ("knob", "kind"),
    [
        (Knob("n", minimum=1, maximum=9, step=1, name="n", type=int, default=3), gr.Slider),
        (Knob("x", minimum=0.0, maximum=1.0, name="x", type=float, default=0.5), gr.Slider),
        (Knob("n", name="n", type=int, default=3), gr.Number),
        (Knob("b", name="b", type=bool, default=True), gr.Checkbox),
        (Knob("c", choices=("a", "b"), name="c", default="a"), gr.Dropdown),
        (Knob("t", name="t", default="3-2-1"), gr.Textbox),
        (Knob("o", offers=lambda: {"a": 1, "b": 2}, name="o", default="elsewhere"), gr.Dropdown),
    ],
)
def test_a_knob_becomes_the_control_that_fits(knob: Knob, kind: type) -> None:
    made = component(knob, knob.default, "id")
    assert type(made) is kind
    assert made.value == knob.default
    assert made.interactive is True


def test_every_knob_of_every_registry_has_one_control(method: Method) -> None:
    wanted = {(kind, name, knob.name) for (kind, name), found in choices.all_knobs().items() for knob in found}
    assert set(method.knobs) == wanted
    assert all(part.interactive for part in method.knobs.values())


def test_offers_are_suggestions_and_are_looked_up_when_they_come_into_view(method: Method, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    part = method.knobs["shape", "searched", "file"]
    assert isinstance(part, gr.Dropdown)
    assert part.allow_custom_value
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    assert method.settled("medusa", "searched", "greedy", 0.0)[part]["choices"] == []
    write_shape(tmp_path / "tiny" / "shapes" / "new_2.json", ShapeFile("new_2", ((0,),), {}))
    assert method.settled("medusa", "searched", "greedy", 0.0)[part]["choices"] == ["tiny/new_2"]
    assert part not in method.settled("medusa", "chain", "greedy", 0.0)


def test_a_searched_tree_is_checked_before_the_run_and_can_be_swept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    choice = Choice("medusa", "searched", "greedy")
    with pytest.raises(SpecvizError, match="No shape file 'gone'"):
        ask(choice, {("shape", "searched", "file"): "gone"})
    write_shape(tmp_path / "tiny" / "shapes" / "new_2.json", ShapeFile("new_2", ((0,),), {}))
    assert ask(choice, {("shape", "searched", "file"): "tiny/new_2"}).spec.shape_knobs == {"file": "tiny/new_2"}
    assert sweep.axes(choice)["shape.file"].values == ("medusa_64", "tiny/new_2")


def test_only_what_applies_is_shown(method: Method) -> None:
    updates = method.settled("prompt_lookup", None, "greedy", 0.0)
    assert visible(updates, method) == {("drafter", "prompt_lookup")}
    assert updates[method.picks["shape"]]["visible"] is False
    updates = method.settled("eagle", "chain", "typical", 0.0)
    assert visible(updates, method) == {("drafter", "eagle"), ("shape", "chain"), ("rule", "typical")}
    assert updates[method.picks["shape"]]["visible"] is True


def test_another_drafter_brings_its_own_shape_and_knobs(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    eagle = choices.thing("drafter", "eagle")
    monkeypatch.setattr(eagle, "default_knobs", {"nodes": 7})
    updates = method.new_drafter("eagle", None, "greedy", 0.0)
    assert updates[method.picks["shape"]]["value"] == eagle.default_shape
    assert updates[method.knobs["shape", eagle.default_shape, "nodes"]]["value"] == 7


def test_greedy_above_temperature_0_becomes_rejection_and_says_so(method: Method) -> None:
    updates = method.settled("prompt_lookup", None, "greedy", 0.7)
    assert updates[method.picks["rule"]]["value"] == "rejection"
    assert updates[method.note]["visible"] is True
    assert "temperature 0 only" in updates[method.note]["value"]
    assert method.settled("prompt_lookup", None, "greedy", 0.0)[method.note]["visible"] is False


def test_lossy_rules_say_so() -> None:
    assert "LOSSY" in choices.describe("rule", "typical")
    assert "LOSSY" not in choices.describe("rule", "rejection")


def test_a_missing_checkpoint_is_named_and_never_the_first_choice() -> None:
    assert "No checkpoint in models/no-such-target/eagle" in choices.describe("drafter", "eagle", "no-such-target")
    assert choices.first_choice("no-such-target") == Choice("prompt_lookup", None, "greedy")


def test_a_checkpoint_that_is_there_makes_its_drafter_the_first_choice(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    (tmp_path / "some-target" / "eagle").mkdir(parents=True)
    (tmp_path / "some-target" / "eagle" / "model.safetensors").write_bytes(b"")
    assert choices.first_choice("some-target").drafter == "eagle"


def ask(choice: Choice, values: dict[Any, Any]) -> Any:
    return choices.make_ask(choice, values, prompt="hi", sampling=choices.make_sampling(0, 1, 0, 0), max_new_tokens=4)


def test_only_knobs_that_apply_reach_the_run() -> None:
    values = {("drafter", "prompt_lookup", "length"): 4, ("shape", "chain", "depth"): 2, ("rule", "typical", "epsilon"): 0.5}
    made = ask(Choice("prompt_lookup", None, "greedy"), values)
    assert made.spec == Spec("prompt_lookup", None, {"length": 4}, {})
    assert made.rule_knobs == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "many", -1, 1e9, 2.5])
def test_a_knob_value_that_cannot_be_used_is_refused_by_name(value: Any) -> None:
    with pytest.raises(BadInput, match="length"):
        ask(Choice("prompt_lookup", None, "greedy"), {("drafter", "prompt_lookup", "length"): value})


@pytest.mark.parametrize("field", ["temperature", "top_p", "top_k", "seed"])
@pytest.mark.parametrize("value", [math.nan, math.inf, None, "x", -1])
def test_sampling_refuses_what_is_no_number_or_out_of_range(field: str, value: Any) -> None:
    values = {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "seed": 1} | {field: value}
    with pytest.raises(BadInput, match=field):
        choices.make_sampling(**values)


def test_wrong_names_are_answered_with_the_right_ones() -> None:
    with pytest.raises(BadInput, match="prompt_lookup"):
        choices.settle("nobody", None, "greedy", 0)
    with pytest.raises(BadInput, match="rejection"):
        choices.settle("prompt_lookup", None, "nothing", 0.5)


def test_presets_are_six_and_fill_the_prompt() -> None:
    assert [preset.name for preset in PRESETS] == ["Chat", "List", "Code", "Maths", "Rewrite", "JSON"]
    assert all(preset.prompt.strip() for preset in PRESETS)


BASE = sweep.Setting(Choice("prompt_lookup", None, "greedy"), 0.0, {})


def test_one_thing_differs_and_the_rest_stays() -> None:
    varied = sweep.vary(BASE, "drafter.length", "3")
    assert varied.knobs == {("drafter", "prompt_lookup", "length"): 3}
    assert (varied.choice, varied.temperature) == (BASE.choice, BASE.temperature)
    hot = sweep.vary(BASE, "temperature", "0.7")
    assert (hot.temperature, hot.choice.rule) == (0.7, "rejection")
    other = sweep.vary(BASE, "drafter", "eagle")
    assert (other.choice.drafter, other.choice.shape) == ("eagle", choices.default_shape("eagle"))


@pytest.mark.parametrize(("key", "value"), [("drafter", "nobody"), ("drafter.length", "nan"), ("temperature", "hot"), ("shape.nodes", "3"), ("", "")])
def test_a_sweep_refuses_what_it_cannot_vary(key: str, value: str) -> None:
    with pytest.raises(BadInput):
        sweep.vary(BASE, key, value)


def test_every_axis_offers_two_values_that_can_run() -> None:
    for drafter in choices.names("drafter"):
        choice = Choice(drafter, choices.default_shape(drafter), "rejection")
        setting = sweep.Setting(choice, 0.0, {})
        for axis in sweep.axes(choice).values():
            for value in axis.pair:
                sweep.vary(setting, axis.key, value)


def test_the_head_with_the_best_report_is_the_first_choice(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    for name, first in {"eagle": 0.5, "hydra": 0.7, "medusa": None}.items():  # one without a report
        install(tmp_path, name, full_report(name, first) if first else None, target="some-target")
    assert choices.first_choice("some-target").drafter == "hydra"
    (tmp_path / "some-target" / "hydra" / "report.json").write_text("{")
    assert choices.first_choice("some-target").drafter == "eagle"
