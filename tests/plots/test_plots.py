"""Every discovered plot draws a whole run, a running one and an empty one; what it draws are the trace's own numbers."""

from __future__ import annotations

import pytest
from recorded import META, SECONDS, round_of, run_knowing, trace_of

from specviz import plots
from specviz.analysis.summary import baseline_record, summarise
from specviz.plots import base
from specviz.registry import discover
from specviz.target import Target
from specviz.trace import Trace

PLOTS = discover(plots)
CHAIN = (-1, 0, 1, 2)


@pytest.fixture(scope="module")
def compared(tiny_target: Target) -> Trace:
    trace, plain = run_knowing(tiny_target)
    return trace.with_baseline(baseline_record(plain))


@pytest.fixture
def by_hand() -> Trace:
    scores = [1.0, 0.9, 0.5, 0.4]
    return trace_of(round_of(0, CHAIN, (1, 2, 3), scores=scores), round_of(1, CHAIN, (1,), scores=scores), round_of(2, CHAIN, (), scores=scores))


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_fits_both_light_and_dark_pages(name: str, compared: Trace) -> None:
    layout = PLOTS[name](compared).layout
    assert (layout.paper_bgcolor, layout.plot_bgcolor) == ("rgba(0,0,0,0)", "rgba(0,0,0,0)")
    assert (layout.height, layout.font.color) == (base.HEIGHT, base.TEXT)
    assert layout.title.text
    assert len(layout.title.text) < 48


def luminance(colour: str) -> float:
    """WCAG relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#0b0f19"])
def test_text_is_legible_on_white_and_on_near_black(background: str) -> None:
    low, high = sorted((luminance(base.TEXT), luminance(background)))
    assert (high + 0.05) / (low + 0.05) >= 4.0


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("rounds", [(), (round_of(0, (-1,), ()),)], ids=["no-round", "root-only"])
def test_an_empty_trace_gives_a_figure_that_says_so(name: str, rounds: tuple) -> None:
    for reason in (None, "stopped"):
        drawn = PLOTS[name](trace_of(*rounds, reason=reason))
        if not rounds:
            assert not drawn.data
            assert drawn.layout.annotations[0].text.endswith("yet.")
        drawn.to_json()


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_draws_the_row_that_is_asked_for(name: str, by_hand: Trace) -> None:
    other = trace_of(round_of(0, CHAIN, (1, 2), row=1, scores=[1.0, 0.3, 0.3, 0.3], seconds={**SECONDS, "verify": 0.5}), row=1)
    both = Trace([*by_hand.events, *other.events])
    assert PLOTS[name](both, 0).to_json() == PLOTS[name](by_hand).to_json()
    assert PLOTS[name](both, 1).to_json() == PLOTS[name](other, 1).to_json() != PLOTS[name](by_hand).to_json()


def test_race_draws_the_run_over_forwards_and_plain_decoding_as_the_diagonal(by_hand: Trace) -> None:
    plain, run = PLOTS["race"](by_hand).data
    assert (list(run.x), list(run.y)) == ([0, 1, 2, 3], [1, 5, 7, 8])
    assert all(y == x + 1 for x, y in zip(plain.x, plain.y, strict=True))
    assert plain.y[-1] == run.y[-1]
    assert (run.line.color, plain.line.color) == (base.ACCEPTED, base.BASELINE)
    assert PLOTS["race"](by_hand).layout.title.text.startswith("2.33 tokens")


def test_race_over_time_draws_the_measured_baseline_only(by_hand: Trace, compared: Trace) -> None:
    (alone,) = PLOTS["race_over_time"](by_hand).data
    assert alone.x[-1] == pytest.approx(3 * (SECONDS["draft"] + SECONDS["verify"] + SECONDS["accept"] + SECONDS["commit"]))
    plain, _ = PLOTS["race_over_time"](compared).data
    record = compared.finished().baseline  # type: ignore[union-attr]
    assert list(plain.x) == list(record["times"])  # type: ignore[index]
    assert list(plain.y) == list(range(1, len(plain.x) + 1))
    untimed = by_hand.with_baseline({"tokens": 9, "seconds": {"verify": 0.8}})
    assert [list(axis) for axis in (PLOTS["race_over_time"](untimed).data[0].x, PLOTS["race_over_time"](untimed).data[0].y)] == [[0.0, 0.8], [1, 9]]


def test_histogram_counts_rounds_and_greys_those_that_gained_nothing(by_hand: Trace) -> None:
    (bars,) = PLOTS["histogram"](by_hand).data
    assert (list(bars.x), list(bars.y)) == ([0, 1, 2, 3], [1, 1, 0, 1])
    assert list(bars.marker.color) == [base.BASELINE, *[base.ACCEPTED] * 3]


def test_depth_draws_conditional_acceptance(by_hand: Trace) -> None:
    (bars,) = PLOTS["depth"](by_hand).data
    assert list(bars.y) == pytest.approx([2 / 3, 1 / 2, 1.0])
    assert [list(pair) for pair in bars.customdata] == [[2, 3], [1, 2], [1, 1]]


def test_time_split_adds_up_to_the_time_per_token(compared: Trace, by_hand: Trace) -> None:
    numbers = summarise(compared)
    bars = {bar.name: dict(zip(bar.y, bar.x, strict=True)) for bar in PLOTS["time_split"](compared).data}
    assert sum(bar["this run"] for bar in bars.values()) == pytest.approx(1000 / (numbers.tokens_per_second or 1))
    assert set(bars["verify"]) == {"plain", "this run"}
    assert [list(bar.y) for bar in PLOTS["time_split"](by_hand).data] == [["this run"]] * 4


def test_calibration_draws_confidence_against_acceptance(by_hand: Trace) -> None:
    *_, accepted = PLOTS["calibration"](by_hand).data
    assert list(accepted.x) == pytest.approx([0.4, 0.5, 0.9])
    assert list(accepted.y) == pytest.approx([1.0, 1 / 2, 2 / 3])


def test_a_token_called_like_markup_never_reaches_a_figure() -> None:
    evil = trace_of(round_of(0, CHAIN, (1,), scores=[1.0, 0.5, 0.5, 0.5], text="<img src=x onerror=alert(1)>"), **META)
    assert not any("<img" in plot(evil).to_json() for plot in PLOTS.values())
