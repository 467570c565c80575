"""The release gate: what fell is named and ends with status 3, what did not passes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from head_reports import make_report

from specviz import cli
from specviz.analysis.gate import compare_reports
from specviz.analysis.head_report import ReportTarget
from specviz.errors import BadInput


def worse(report, **changed):
    """The report with other numbers for its main tree."""
    return replace(report, greedy=(report.greedy[0], replace(report.greedy[1], **changed), report.greedy[2]))


def save(folder, name, report):
    (folder / name).write_text(json.dumps(report.to_json()))
    return str(folder / name)


def test_what_fell_is_told_by_depth_and_category():
    old = make_report()
    new = worse(old, tau=1.9, accepted=(300, 100, 0), reached=(400, 300, 0), categories={"chat": 2.0, "code": 1.8})
    fallen = {one.what: round(one.drop, 3) for one in compare_reports(old, new).fallen(0.05)}
    spec = "eagle@dynamic:nodes=24"
    assert fallen == {f"tau of {spec}": 0.095, f"depth 1 of {spec}": 0.063, f"depth 2 of {spec}": 0.333, f"category code of {spec}": 0.182}
    assert compare_reports(old, new).fallen(0.5) == ()


def test_a_fall_of_exactly_the_share_is_allowed():
    old = worse(make_report(), tau=2.0)
    assert not compare_reports(old, worse(old, tau=1.9)).fallen(0.05)
    assert compare_reports(old, worse(old, tau=1.89)).fallen(0.05)


def test_temperatures_are_compared_too():
    old = make_report()
    new = replace(old, sampled=(replace(old.sampled[0], tau=1.0),))
    assert [one.what for one in compare_reports(old, new).fallen(0.05)] == ["tau of eagle@dynamic:nodes=24 at temperature 0.7"]


def test_a_depth_with_few_rounds_is_not_judged():
    old = worse(make_report(), reached=(400, 320, 20), accepted=(320, 160, 10))
    found = compare_reports(old, worse(old, accepted=(320, 160, 0)))
    assert not found.fallen(0.05)
    assert "depth 3 was tested in fewer than 30 rounds" in found.left_out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "medusa"}, "of a 'eagle' head, the new one of a 'medusa' head"),
        ({"text": replace(make_report().text, hash="other")}, "speak of different text"),
        ({"greedy": ()}, "no spec in common"),
    ],
)
def test_reports_that_cannot_be_compared(change, message):
    with pytest.raises(BadInput, match=message):
        compare_reports(make_report(), make_report(**change))


def test_the_command_passes_and_fails(tmp_path, capsys, monkeypatch):
    old = make_report()
    before = save(tmp_path, "old.json", old)
    stale = replace(worse(old, tau=1.9, accepted=(200, 100, 0)), target=ReportTarget("tiny", "bbbb"))
    after = save(tmp_path, "new.json", stale)
    assert cli.main(["report", "--against", before, before]) == 0
    assert "Nothing fell by more than 5.0%." in capsys.readouterr().out
    assert cli.main(["report", "--against", before, "--max-drop", "0.05", after]) == 3
    told = capsys.readouterr().out
    assert "FELL 37.5%: depth 1 of eagle@dynamic:nodes=24, 0.800 -> 0.500" in told
    assert "from aaaa to bbbb; the head is the same: it is stale" in told
    assert cli.main(["report", "--against", before, "--max-drop", "0.6", after]) == 0
    # a method's name means the report beside its head, no name the old report's own method
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    (tmp_path / "tiny" / "eagle").mkdir(parents=True)
    save(tmp_path / "tiny" / "eagle", "report.json", stale)
    assert cli.main(["report", "--against", before, "eagle", "--target", "tiny"]) == 3
    assert cli.main(["report", "--against", before, "--target", "tiny"]) == 3
    capsys.readouterr()
    assert cli.main(["report", "--against", before, str(tmp_path / "none.json")]) == 2
    assert "There is no report" in capsys.readouterr().err
    assert cli.main(["report", "--against", before, before, "--max-drop", "5"]) == 2
