"""What a clumsy or hostile hand gave the newer commands, and what they must answer: one clear sentence, and nothing done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import makers
from checkpoints.own import LAYER, H
from head_reports import make_report
from made_costs import profile

from specviz import shapes
from specviz.analysis import profile_file
from specviz.analysis.budget import taus_of
from specviz.analysis.gate import compare_reports
from specviz.analysis.head_report import Greedy, from_json
from specviz.checkpoints.conversion import convert
from specviz.checks import is_count, is_number
from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
from specviz.drafters.eagle3 import Eagle3
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.errors import BadFile, BadInput, SpecvizError
from specviz.registry import bind
from specviz.sources import user_path
from specviz.training.card import read_evaluation
from specviz.training.loop import Plan


@pytest.fixture
def eagle3(tmp_path: Path, tiny_target: Any) -> Path:
    torch.manual_seed(0)
    sizes = Eagle3Sizes(**LAYER, feature=H, taps=(0, 1, 2), own_rows=False, residual_embedding=True)
    save_head(tmp_path / "eagle3", HeadConfig("eagle3", sizes.to_json(), tiny_target.fingerprint), Eagle3Layer(sizes), makers.draft_ids())
    return tmp_path / "eagle3"


@pytest.mark.parametrize("to", ["eagle3", "speculators"])
def test_a_head_without_a_foreign_form_is_not_exported(eagle3: Path, to: str, tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(BadInput, match="no published form"):
        convert(eagle3, to, tmp_path / "out", tiny_folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"taps": "abc"}, {"taps": 5}, {"taps": [2, 15]}, {"hidden": "64"}, {"hidden": -1}, {"rope_theta": "x"}, {"intermediate": 10**15},
        {"draft_vocab": 7}, {"unknown": 1}, {"rope_scaling": {"rope_type": "linear"}},
    ],
)  # fmt: skip
def test_damaged_sizes_are_one_clear_error(eagle3: Path, changed: dict[str, Any], tiny_target: Any) -> None:
    record = json.loads((eagle3 / "config.json").read_text())
    record["sizes"] |= changed
    (eagle3 / "config.json").write_text(json.dumps(record))
    with pytest.raises(SpecvizError):
        Eagle3(tiny_target, shape=bind(shapes, "chain"), checkpoint=str(eagle3))


@pytest.mark.parametrize("first", [-1, 5])
def test_a_vocabulary_that_cannot_be_one_is_refused(eagle3: Path, first: int, tiny_target: Any) -> None:
    ids = makers.draft_ids().clone()
    ids[0] = ids[1] if first == 5 else first
    sizes = Eagle3Sizes.from_json(json.loads((eagle3 / "config.json").read_text())["sizes"])
    save_head(eagle3, HeadConfig("eagle3", sizes.to_json(), tiny_target.fingerprint), Eagle3Layer(sizes), ids)
    with pytest.raises(BadFile, match="twice or a negative"):
        Eagle3(tiny_target, shape=bind(shapes, "chain"), checkpoint=str(eagle3))


@pytest.mark.parametrize(
    "odd",
    [
        {"epochs": -1}, {"epochs": "abc"}, {"rate": float("nan")}, {"precision": "foo"}, {"held_out": "x"}, {"tokens": 0}, {"draft_vocab": 0},
        {"data_share": 0}, {"seed": "x"},
    ],
)  # fmt: skip
def test_a_plan_that_cannot_train_is_refused_at_once(odd: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(odd))):
        Plan(**odd)


def test_a_report_s_impossible_trees_are_no_budget() -> None:
    odd = (Greedy("dynamic", "x", 10**9, 1e300, 5, (5,), (1,), {}), Greedy("dynamic", "x", 8, -3.0, 5, (5,), (1,), {}))
    report = make_report()
    assert taus_of(replace(report, greedy=(*report.greedy, *odd)), 0.0) == taus_of(report, 0.0)


def test_numbers_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile):
        from_json(make_report().to_json() | {"seconds": 10**400}, "report.json")
    (tmp_path / "eval.json").write_text('{"mmlu": 1' + "0" * 400 + "}")
    with pytest.raises(BadFile, match="mmlu"):
        read_evaluation(tmp_path / "eval.json")
    (tmp_path / "eval.json").write_text("[" * 100_000)
    with pytest.raises(BadFile):
        read_evaluation(tmp_path / "eval.json")


def test_the_home_of_nobody_is_named() -> None:
    with pytest.raises(BadInput, match="nosuchuser"):
        user_path("~nosuchuser/x.json")


def test_the_gate_names_a_temperature_that_is_gone() -> None:
    report = make_report()
    found = compare_reports(report, replace(report, sampled=()))
    assert any("at temperature 0.7 on 8 prompts is not in the new report" in text for text in found.missing)


@pytest.mark.parametrize("changed", [{"tau": -3.0}, {"tau": 25.5}, {"accepted": [401, 160, 0]}])
def test_numbers_that_no_run_can_give_are_refused(changed: dict[str, Any]) -> None:
    record = json.loads(json.dumps(make_report().to_json()))
    record["greedy"][1] |= changed
    with pytest.raises(BadFile, match=r"greedy\[1\]"):
        from_json(record)


def test_a_number_without_end_in_a_trace_or_a_profile_is_refused() -> None:
    assert not is_number(10**400)
    assert not is_count(10**400)
    assert not is_number(True)
    record = profile_file.to_json(profile({1: 10.0}))
    record["forward_ms"]["1"] = 10**400
    with pytest.raises(ValueError, match="no measurement"):
        profile_file.from_json(record)
