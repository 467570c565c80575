"""Figures of head reports: they draw the report's own numbers, say what was not measured, and take no name for markup."""

from __future__ import annotations

from dataclasses import replace

import pytest
from head_reports import TEXT, full_report

from specviz.analysis.head_report import HeadReport, ReportTarget
from specviz.plots import base, heads
from specviz.registry import discover, summary

PLOTS = discover(heads)
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def report() -> HeadReport:
    return full_report("eagle", 0.6)


@pytest.mark.parametrize("name", PLOTS)
def test_every_figure_fits_light_and_dark_pages_and_has_a_caption(name: str, report: HeadReport) -> None:
    layout = PLOTS[name](report, [full_report("medusa", 0.4)]).layout
    assert (layout.paper_bgcolor, layout.font.color) == ("rgba(0,0,0,0)", base.TEXT)
    assert 0 < len(layout.title.text) < 36  # a phone shows no more
    assert len(summary(PLOTS[name])) > 60


@pytest.mark.parametrize("name", PLOTS)
def test_what_was_not_measured_is_said(name: str, report: HeadReport) -> None:
    bare = replace(report, greedy=(), calibration=(), loss=(), held_out=(), learning_curve=())
    drawn = PLOTS[name](bare, [report])
    assert not drawn.data
    assert drawn.layout.annotations[0].text == "Not measured."


def test_tree_size_draws_a_line_of_growing_trees_and_points_of_fixed_ones(report: HeadReport) -> None:
    line, points = PLOTS["tree_size"](report).data
    grown = [one for one in report.greedy if one.shape == "dynamic"]
    assert (list(line.x), list(line.y)) == ([4, 8, 12, 16, 24, 32, 48, 60], [one.tau for one in grown])
    assert list(line.customdata) == [one.rounds for one in grown]
    assert (list(points.x), list(points.text), points.mode) == ([6, 64], ["chain", "medusa_63"], "markers+text")


def test_a_second_growing_shape_gets_its_own_line(report: HeadReport) -> None:
    more = replace(report, greedy=(*report.greedy, replace(report.greedy[4], shape="another", spec="eagle@another:nodes=16")))
    assert [line.name for line in PLOTS["tree_size"](more).data] == ["eagle, dynamic", "eagle, another", "eagle, fixed trees"]


@pytest.mark.parametrize("name", ["tree_size", "depth"])
def test_other_heads_are_thin_and_the_chosen_one_is_not(name: str, report: HeadReport) -> None:
    others = [full_report("medusa", 0.4), full_report("hydra", 0.5)]
    lines = {line.name: line for line in PLOTS[name](report, others).data}
    assert {"medusa", "hydra", "eagle"} <= set(lines)
    assert {lines["medusa"].line.width, lines["hydra"].line.width} == {1.2}
    assert lines["medusa"].line.dash != lines["hydra"].line.dash
    assert (lines["eagle"].line.width or 9) > 2 if name == "tree_size" else lines["eagle"].type == "bar"


@pytest.mark.parametrize("changed", [{"text": replace(TEXT, hash="beef")}, {"target": ReportTarget("tiny-llama", "ffff")}])
def test_numbers_of_other_text_are_marked(report: HeadReport, changed: dict) -> None:
    names = [line.name for line in PLOTS["depth"](report, [full_report("medusa", 0.4, **changed)]).data]
    assert names == ["eagle", "medusa (other text)"]


def test_depth_draws_conditional_acceptance_with_its_counts(report: HeadReport) -> None:
    (bars,) = PLOTS["depth"](report).data
    main = report.main
    assert main is not None
    assert list(bars.x) == [1, 2, 3, 4, 5]
    assert list(bars.y) == pytest.approx([a / r for a, r in zip(main.accepted, main.reached, strict=True)])
    assert [list(pair) for pair in bars.customdata] == [list(pair) for pair in zip(main.accepted, main.reached, strict=True)]


def test_a_depth_that_no_round_reached_is_left_out(report: HeadReport) -> None:
    main = replace(report.greedy[6], reached=(10, 4, 0), accepted=(4, 0, 0))
    (bars,) = PLOTS["depth"](replace(report, greedy=(main,))).data
    assert (list(bars.x), list(bars.y)) == ([1, 2], [0.4, 0.0])


def test_calibration_shows_how_many_candidates_each_point_stands_for(report: HeadReport) -> None:
    diagonal, accepted = PLOTS["calibration"](report).data
    assert list(diagonal.x) == list(diagonal.y)
    assert list(accepted.x) == [one.confidence for one in report.calibration]
    assert list(accepted.y) == [one.accepted for one in report.calibration]
    assert list(accepted.text)[:2] == ["9.0k", "4.5k"]
    assert accepted.text[-1] == "900"


def test_learning_tells_fits_of_their_own_from_one_fit_on_its_way(report: HeadReport) -> None:
    own, way = PLOTS["learning"](report).data
    assert (list(own.x), own.mode) == ([250_000, 500_000, 1_000_000], "lines+markers")
    assert (len(way.x), way.mode) == (10, "lines")
    assert own.y[-1] == pytest.approx(1.55)


def test_loss_and_held_out_tau_have_an_axis_each(report: HeadReport) -> None:
    loss, held = PLOTS["loss"](report).data
    assert (len(loss.x), loss.yaxis, held.yaxis) == (81, None, "y2")
    assert list(held.y) == [point.value for point in report.held_out]
    (alone,) = PLOTS["loss"](replace(report, loss=())).data
    assert alone.name == "held-out τ"


@pytest.mark.parametrize("name", PLOTS)
def test_names_from_a_file_are_no_markup(name: str, report: HeadReport) -> None:
    evil = replace(report, method=EVIL, greedy=tuple(replace(one, shape=EVIL) for one in report.greedy))
    assert "<img" not in PLOTS[name](evil, [evil]).to_json()
