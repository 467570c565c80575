"""Head reports: what is written can be read again, and what does not fit is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from head_reports import make_report

from specviz.analysis.head_report import from_json, load_report
from specviz.errors import BadFile, Missing


def test_a_report_survives_its_file(tmp_path):
    report = make_report()
    (tmp_path / "report.json").write_text(json.dumps(report.to_json()))
    assert load_report(tmp_path) == report
    assert load_report(tmp_path / "report.json") == report
    record = report.to_json()
    assert record["loss"] == [[1, 9.5], [2, 8.0]]
    assert "target" not in record["calibration"][0]


def test_parts_that_were_not_measured_may_be_missing():
    record = make_report().to_json()
    for name in ("sampled", "checked", "calibration", "loss", "held_out", "learning_curve", "evaluation", "misses", "greedy"):
        del record[name]
    found = from_json(record)
    assert (found.greedy, found.checked, found.sampled, found.main) == ((), None, (), None)


def test_the_main_tree_is_the_growing_one_of_24_nodes():
    report = make_report()
    assert report.main.spec == "eagle@dynamic:nodes=24"
    assert report.grown(60).tau == 2.5
    assert report.grown(7) is None
    assert replace(report, greedy=report.greedy[:1]).main.shape == "chain"
    assert report.main.conditional == (0.8, 0.5, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "specviz-head-report-9"}, "has the format 'specviz-head-report-9'"),
        ({"format": None}, "is no head report"),
        ({"seconds": "long"}, "field 'seconds' is 'long', expected float"),
        ({"seconds": float("nan")}, "field 'seconds'"),
        ({"target": {"name": "tiny"}}, "target has no field 'weights'"),
        ({"greedy": [{"shape": "chain"}]}, r"greedy\[0\] has no field 'spec'"),
        ({"greedy": {}}, "field 'greedy' is no list"),
        ({"loss": [[1]]}, "loss is no list of"),
        ({"evaluation": {"mmlu": "good"}}, "field 'evaluation'"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(BadFile, match=message):
        from_json({**make_report().to_json(), **change})


def test_columns_of_different_length_are_refused():
    record = make_report().to_json()
    record["greedy"][0]["accepted"] = [1]
    with pytest.raises(BadFile, match="differ in length"):
        from_json(record)


def test_a_report_that_is_not_there(tmp_path):
    with pytest.raises(Missing, match="specviz report METHOD"):
        load_report(tmp_path)
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(BadFile, match="cannot be read"):
        load_report(tmp_path)
