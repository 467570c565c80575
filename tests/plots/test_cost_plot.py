"""The cost chart: the curve of this machine where it was measured, this run's own forwards always, and no number that was not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_costs import SETTING, profile
from recorded import SECONDS, round_of, trace_of

from specviz.analysis.profile_file import profile_path, write_profile
from specviz.plots import base
from specviz.plots.cost import cost, needs_profile
from specviz.trace import Trace

BUDGET = {"asked": "auto", "nodes": 4, "speedup": 1.3, "why": "", "curve": [{"nodes": n, "tau": 1.5, "verify": 1.1, "draft": 0.1, "rest": 0.0, "speedup": s} for n, s in ((4, 1.3), (8, 1.1))]}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))


def run(**meta: Any) -> Trace:
    slow = {**SECONDS, "verify": 0.08}
    return trace_of(round_of(0, (-1, 0, 1, 2), (1,)), round_of(1, (-1, 0, 1, 2), (1,), seconds=slow), round_of(2, (-1, 0), ()), **{**SETTING, **meta})


def lines(figure: Any) -> dict[str, dict[float, float]]:
    return {trace.name: dict(zip(trace.x, trace.y, strict=True)) for trace in figure.data}


def test_without_a_profile_the_run_s_own_forwards_are_drawn_in_milliseconds() -> None:
    figure = cost(run())
    assert lines(figure) == {"cost, this run": {2: 50.0, 4: 65.0}}
    assert "not measured yet" in figure.layout.title.text
    assert "ms" in figure.layout.yaxis.title.text
    assert needs_profile(run())


def test_the_profile_of_this_machine_gives_the_curve() -> None:
    write_profile(profile({1: 40.0, 8: 60.0}))
    figure = cost(run())
    assert lines(figure)["cost C(N)"] == {1: 1.0, 8: 1.5}
    assert lines(figure)["cost, this run"] == {2: 1.25, 4: 1.625}
    assert figure.data[0].line.color == base.BASELINE
    assert not needs_profile(run())
    assert needs_profile(run(device={**SETTING["device"], "threads": 64}))  # a run of another machine takes no curve from this one


def test_the_modelled_curve_stands_beside_the_measured_speed_up() -> None:
    trace = run(drafter={"name": "eagle", "budget": BUDGET}).with_baseline({"tokens": 11, "seconds": {"verify": 0.5}})
    found = lines(cost(trace))
    assert found["speed, modelled"] == {4: 1.3, 8: 1.1}
    assert found["cost, this run"][2] == 1.0  # 50 ms, as long as a plain step
    ((nodes, speedup),) = found["speed, measured"].items()
    assert nodes == 4
    assert speedup == pytest.approx(5 / (3 * 0.013 + 0.18) / 20.0)
    assert not needs_profile(trace)


def test_a_damaged_profile_is_offered_to_be_measured_again() -> None:
    write_profile(profile({1: 40.0}))
    profile_path(SETTING).write_text("{")
    assert needs_profile(run())
    assert "not measured yet" in cost(run()).layout.title.text


@pytest.mark.parametrize("meta", [{"device": 7}, {"drafter": 7}, {"drafter": {"budget": 3}}, {"drafter": {"budget": {"curve": None}}}, {"versions": None}])
def test_an_odd_record_is_drawn_without_what_it_lacks(meta: dict[str, Any]) -> None:
    assert cost(run(**meta)).data
