"""The charts in a real browser: a title, its legend and the lines stand one below the other, however narrow the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from made_costs import SETTING, profile
from players import Open
from recorded import round_of, trace_of

from specviz.analysis.profile_file import write_profile
from specviz.trace import Trace
from specviz.ui.charts import Charts
from specviz.ui.widgets.player import Player

CURVE = [{"nodes": n, "tau": 1.5, "verify": 1.1, "draft": 0.1, "rest": 0.0, "speedup": s} for n, s in ((4, 1.3), (8, 1.1))]
BOXES = """all => all.map(plot => {
    const box = (name) => { const found = plot.querySelector(name); return found && found.getBoundingClientRect(); };
    const title = box(".gtitle"), legend = box(".legend"), area = box(".nsewdrag");
    return { title: title.bottom, text: plot.querySelector(".gtitle").textContent, top: legend && legend.top, bottom: legend && legend.bottom, area: area.top, height: area.height };
})"""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A run with all that a chart can draw, and so with the longest legends."""
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    write_profile(profile({1: 40.0, 8: 60.0}))
    drafter: dict[str, Any] = {"name": "eagle", "budget": {"asked": "auto", "nodes": 4, "speedup": 1.3, "why": "", "curve": CURVE}}
    scores = [1.0, 0.9, 0.5, 0.4]
    rounds = [round_of(0, (-1, 0, 1, 2), (1,), scores=scores), round_of(1, (-1, 0, 1, 2), (1, 2, 3), scores=scores)]
    return trace_of(*rounds, **SETTING, drafter=drafter).with_baseline({"tokens": 11, "seconds": {"verify": 0.5}})


@pytest.mark.browser
@pytest.mark.parametrize("width", [331, 1280])
def test_a_title_stands_above_its_legend_and_the_legend_above_the_lines(show: Open, measured: Trace, shown: dict[str, Any], width: int) -> None:
    with gr.Blocks() as demo:
        Player(shown, elem_id="player")
        charts = Charts(measured, "live")
    page = show(demo, width=width)  # 331 leaves a chart what it has on a phone of 375
    page.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .gtitle').length === {len(charts.places)}")
    found = page.locator(".js-plotly-plot").evaluate_all(BOXES)
    assert sum(one["top"] is not None for one in found) >= 5
    for one in found:
        assert one["height"] >= 80, one
        if one["top"] is not None:
            assert one["title"] <= one["top"], one
            assert one["bottom"] <= one["area"] + 1, one
