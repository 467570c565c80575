"""The heads page: every installed head with its report, what is stale, damaged or not measured, and the way there and back."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from apps import SETTINGS, make_app
from head_reports import TEXT, WEIGHTS, full_report, install

from specviz.analysis.head_report import NAME, ReportTarget, load_report
from specviz.target import Target
from specviz.ui import head_words, installed
from specviz.ui.app import App
from specviz.ui.build import build
from specviz.ui.engine import Engine
from specviz.ui.pages.heads import HeadsPage

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty models folder whose target has the weights that made-up heads were trained against."""
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    monkeypatch.setattr(installed, "hash_folder", lambda folder: WEIGHTS)
    installed._folder_weights.cache_clear()
    yield tmp_path
    installed._folder_weights.cache_clear()


@pytest.fixture
def heads() -> HeadsPage:
    """The page of an app whose model is not loaded: it reads files only."""
    with gr.Blocks():
        made = HeadsPage(App(SETTINGS, Engine(SETTINGS)))
        made.place()
        made.wire()
    return made


def shown(heads: HeadsPage, name: str | None = None, others: bool = True) -> dict[str, Any]:
    """Returns what the page shows, by the name of the part."""
    parts = {part: key for key, part in vars(heads).items() if key not in ("app", "figures")}
    parts |= {part: f"plot {key}" for key, part in heads.figures.items()}
    return {parts[part]: value for part, value in heads.show(name, others).items()}


def test_a_report_is_told_in_words_and_drawn(models: Path, heads: HeadsPage) -> None:
    install(models, "eagle", full_report("eagle", 0.6))
    found = shown(heads, "eagle")
    main = full_report("eagle", 0.6).main
    assert main is not None
    for said in (
        f"{main.tau:.2f}",
        "questions.jsonl",
        "80 prompts",
        "24 nodes",
        "0.5 MB",
        "1.23 M",
        "35 min",
        "Trained and measured against exactly the target",
    ):
        assert said in found["summary"], said
    assert "Predicts the target" in found["summary"]
    assert found["measured"]["visible"]
    assert found["draft"]["visible"]
    assert {name for name in found if name.startswith("plot ")} == {"plot tree_size", "plot depth", "plot calibration", "plot learning", "plot loss"}
    assert "STALE" not in found["summary"]


def test_the_tables_hold_every_part_of_the_report(models: Path, heads: HeadsPage) -> None:
    report = full_report("eagle", 0.6)
    install(models, "eagle", report)
    found = shown(heads, "eagle")
    assert re.findall(r'<th scope="row">(\w+)</th>', found["sections"])[:3] == ["writing", "coding", "maths"]  # best first
    for said in ("0.7", "2.000", "2.012", "0.6% apart", "1.25%", "123 of 9,876", "made_up_eval", "0.31", "5 min"):
        assert said in found["sections"], said
    assert found["trees"].count("<tr>") == len(report.greedy) + 1
    assert "0.0006" not in found["settings"]  # the head's own config, not the report's copy
    assert "1234567" in found["settings"]


def test_what_is_missing_from_a_report_says_so(models: Path, heads: HeadsPage) -> None:
    install(
        models, "eagle", full_report("eagle", greedy=(), checked=None, sampled=(), calibration=(), evaluation=None, loss=(), held_out=(), learning_curve=())
    )
    found = shown(heads, "eagle")
    assert found["sections"].lower().count("not measured") == 3
    assert "Evaluation" not in found["sections"]
    assert all(not found[name].data for name in found if name.startswith("plot "))


def test_a_head_without_a_report_is_listed_with_the_command_that_measures_it(models: Path, heads: HeadsPage) -> None:
    install(models, "medusa")
    found = shown(heads)
    assert found["pick"]["choices"] == ["medusa"]
    assert "Not measured yet." in found["summary"]
    assert "python -m specviz report medusa --prompts PROMPTS.jsonl --target tiny-llama" in found["summary"]
    assert not found["measured"]["visible"]
    assert found["download"] == ""
    assert found["draft"]["visible"]  # it can be tried without having been measured


def test_without_a_head_the_page_says_how_to_get_one(models: Path, heads: HeadsPage) -> None:
    assert "python -m specviz train eagle --target tiny-llama" in shown(heads)["summary"]


def test_a_drafter_without_its_head_is_answered_and_another_one_shown(models: Path, heads: HeadsPage) -> None:
    install(models, "eagle", full_report("eagle", 0.6))
    found = shown(heads, "medusa")
    assert "No medusa head is installed for tiny-llama" in found["summary"]
    assert found["pick"]["value"] == "eagle"


def test_the_best_measured_head_comes_first(models: Path, heads: HeadsPage) -> None:
    for method, first in (("eagle", 0.5), ("eagle3", 0.7), ("hydra", 0.6)):
        install(models, method, full_report(method, first))
    assert shown(heads)["pick"]["value"] == "eagle3"


def test_other_heads_are_drawn_thin_unless_switched_off(models: Path, heads: HeadsPage) -> None:
    for method in ("eagle", "hydra"):
        install(models, method, full_report(method))
    assert "hydra" in [line.name for line in shown(heads, "eagle")["plot tree_size"].data]
    assert [line.name for line in shown(heads, "eagle", others=False)["plot depth"].data] == ["eagle"]


def test_a_head_of_another_target_is_stale(models: Path, heads: HeadsPage) -> None:
    install(models, "eagle", full_report("eagle"), trained_against="ffff")
    found = shown(heads, "eagle")
    assert "STALE head: it was trained against target weights ffff, the installed target has" in found["summary"]
    assert "python -m specviz train eagle --target tiny-llama" in found["summary"]
    assert "STALE" in found["overview"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target": ReportTarget("tiny-llama", "ffff")}, "measured with target weights ffff"),
        ({"checkpoint": "0000"}, "speaks of checkpoint 0000"),
        ({"method": "medusa"}, "of a medusa head, the folder holds eagle"),
    ],
)
def test_a_report_that_does_not_belong_to_the_head_is_stale(models: Path, heads: HeadsPage, changed: dict[str, Any], said: str) -> None:
    install(models, "eagle", replace(full_report("eagle"), **changed))
    assert said in shown(heads, "eagle")["summary"]


def test_a_loaded_target_is_what_heads_are_compared_with(models: Path, tiny_target: Target) -> None:
    app = make_app(tiny_target)
    assert installed.target_weights(app) == tiny_target.fingerprint.weights != WEIGHTS
    install(models, "eagle", full_report("eagle"))
    assert "STALE" in installed.read_heads(app)["eagle"].warnings[0]


def test_a_new_checkpoint_is_hashed_again(models: Path) -> None:
    folder = install(models, "eagle", full_report("eagle"))
    assert installed.read_head(folder, WEIGHTS).warnings == ()
    (folder / "model.safetensors").write_bytes(b"trained again")
    assert "speaks of checkpoint" in installed.read_head(folder, WEIGHTS).warnings[0]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "specviz-head-report-9"}', f'{{"format": "{EVIL}"}}', "[" * 100_000])
def test_a_damaged_report_is_named_and_other_heads_stay_usable(models: Path, heads: HeadsPage, text: str) -> None:
    install(models, "eagle", full_report("eagle"))
    bad = install(models, "hydra")
    (bad / NAME).write_text(text)
    found = shown(heads, "hydra")
    assert escape(str(bad / NAME)) in found["summary"]
    assert 'role="alert"' in found["summary"]
    assert "<img" not in found["summary"] + found["overview"]
    assert "Not measured yet" not in found["summary"]
    assert not found["measured"]["visible"]
    assert shown(heads, "eagle")["measured"]["visible"]


@pytest.mark.parametrize("text", ["{", "[]", '{"method": 3, "training": [], "target": "x"}'])
def test_a_damaged_config_does_not_break_the_page(models: Path, heads: HeadsPage, text: str) -> None:
    (install(models, "eagle", full_report("eagle")) / "config.json").write_text(text)
    found = shown(heads, "eagle")
    assert found["measured"]["visible"]
    assert found["pick"]["value"] == "eagle"


def test_a_head_without_weights_cannot_draft(models: Path, heads: HeadsPage) -> None:
    (install(models, "eagle") / "model.safetensors").unlink()
    found = shown(heads, "eagle")
    assert "cannot draft" in found["summary"]
    assert not found["draft"]["visible"]


def test_texts_from_files_are_escaped(models: Path, heads: HeadsPage) -> None:
    report = full_report("eagle", text=replace(TEXT, name=EVIL), made=EVIL, evaluation={EVIL: 1.0})
    greedy = tuple(replace(one, shape=EVIL, spec=f"{EVIL}nodes=", categories={EVIL: 2.0}) for one in report.greedy)
    install(models, "eagle", replace(report, method=EVIL, greedy=greedy, checkpoint=EVIL, target=ReportTarget(EVIL, EVIL)), trained_against=EVIL)
    found = shown(heads, "eagle")
    assert "&lt;img" in found["summary"]
    assert not any("<img" in value for value in found.values() if isinstance(value, str))
    assert not any("<img" in value.to_json() for name, value in found.items() if name.startswith("plot "))


def test_the_download_is_the_report_file_itself(models: Path, heads: HeadsPage) -> None:
    folder = install(models, "eagle", full_report("eagle"))
    (held,) = re.findall(r"base64,([^\"]+)\"", shown(heads, "eagle")["download"])
    assert base64.b64decode(held) == (folder / NAME).read_bytes()
    assert load_report(folder) == full_report("eagle")


def test_reports_on_other_text_are_marked_in_the_overview(models: Path, heads: HeadsPage) -> None:
    install(models, "eagle", full_report("eagle"))
    install(models, "hydra", full_report("hydra", text=replace(TEXT, hash="beef")))
    install(models, "medusa")
    rows = re.findall(r'<th scope="row">(\w+)</th>.*?<td>([^<]*)</td></tr>', shown(heads, "eagle")["overview"])
    assert rows == [("eagle", ""), ("hydra", "other text"), ("medusa", "not measured yet")]
    assert "other text" in shown(heads, "medusa")["overview"]


@pytest.mark.parametrize(("value", "text"), [(40, "40 s"), (2080, "35 min"), (7200, "2.0 h")])
def test_durations_are_short(value: float, text: str) -> None:
    assert head_words.duration(value) == text


def test_a_drafter_leads_to_its_report_and_a_head_to_drafting_with_it(models: Path, tiny_target: Target) -> None:
    install(models, "eagle", full_report("eagle"))
    demo = build(app=make_app(tiny_target))
    config = demo.get_config_file()
    places = {part["props"].get("elem_id"): part["id"] for part in config["components"]}
    clicks = {target[0]: step for step in config["dependencies"] for target in step["targets"] if target[1] == "click"}
    for prefix in ("live", "compare"):
        step = clicks[places[f"{prefix}-report"]]
        assert step["inputs"] == [places[f"{prefix}-drafter"]]
        assert places["pages"] in step["outputs"]
    assert {places["pages"], places["live-drafter"]} <= set(clicks[places["heads-draft"]]["outputs"])
    (opened,) = [step for step in config["dependencies"] if [places["page-heads"], "select"] in [list(target) for target in step["targets"]]]
    assert {places["heads-summary"], places["heads-plot-depth"]} <= set(opened["outputs"])


def test_what_another_page_asked_for_wins_once(models: Path, heads: HeadsPage) -> None:
    for method in ("eagle", "hydra"):
        install(models, method, full_report(method))
    updates = heads.show("eagle", True, "hydra")
    assert updates[heads.pick]["value"] == "hydra"
    assert updates[heads.asked] is None
