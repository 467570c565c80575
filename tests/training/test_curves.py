"""Curves read from what a fit left: thinned, of the right fit, and over the amount of data."""

from __future__ import annotations

import json

import pytest

from specviz.analysis.head_report import LearningPoint, Point
from specviz.errors import BadFile
from specviz.training.curves import averaged, read_curves, thinned

TRAINING = {"steps": 4, "answer_tokens": 100, "epochs": 2, "stop_after": None}


def write_log(folder, steps=4):
    folder.mkdir(parents=True)
    records = [{"step": n, "loss": 10.0 - n} | ({"chain_tau": 1 + n / 10} if n % 2 == 0 else {}) for n in range(1, steps + 1)]
    records.insert(1, {"step": 1, "loss": 99.0})  # logged twice, as by a resumed fit
    records[0], records[1] = records[1], records[0]
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_curves_of_a_fit(tmp_path):
    write_log(tmp_path / "eagle")
    found = read_curves(tmp_path / "eagle", TRAINING, say=lambda text: None)
    assert found.loss[0] == Point(1, 9.0)
    assert found.held_out == (Point(2, 1.2), Point(4, 1.4))
    assert found.learning == (LearningPoint(100, 1.2, "training"), LearningPoint(200, 1.4, "training"))


def test_the_log_of_another_fit_is_left_out(tmp_path):
    write_log(tmp_path / "eagle", steps=3)
    told = []
    assert read_curves(tmp_path / "eagle", TRAINING, say=told.append).loss == ()
    assert "ends at step 3, this head was trained for 4" in told[0]
    read_curves(tmp_path / "none", TRAINING, say=told.append)
    assert "no fit log" in told[1]


def test_fits_on_parts_of_the_data_make_a_learning_curve(tmp_path):
    write_log(tmp_path / "eagle")
    for name, tokens, tau in (("eagle", 100, 1.9), ("eagle-share0.5", 50, 1.7), ("eagle-share0.25", 25, 1.5), ("eagle3-share0.5", 50, 9.9)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "result.json").write_text(json.dumps({"answer_tokens": tokens, "chain_tau": tau}))
    found = read_curves(tmp_path / "eagle", TRAINING | {"stop_after": 4}, say=lambda text: None)
    assert found.learning == (LearningPoint(25, 1.5, "data"), LearningPoint(50, 1.7, "data"), LearningPoint(100, 1.9, "data"))


def test_long_curves_are_thinned():
    points = [Point(n, float(n % 2)) for n in range(1, 1001)]
    mean = averaged(points, 200)
    assert len(mean) == 200
    assert {point.value for point in mean} <= {0.4, 0.6}  # groups of five
    assert mean[-1].step == 1000
    few = thinned(points, 3)
    assert [point.step for point in few] == [1, 500, 1000] or [point.step for point in few] == [1, 501, 1000]
    assert averaged(points[:5]) == thinned(points[:5]) == tuple(points[:5])


def test_a_damaged_log_is_named(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(BadFile, match="no log of a fit"):
        read_curves(tmp_path, TRAINING)
