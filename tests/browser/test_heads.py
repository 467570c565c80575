"""The way from a drafter to the report of its head and back, on a wide screen and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from head_reports import full_report, install
from playwright.sync_api import expect

from specviz.analysis.head_report import ReportTarget
from specviz.target import Target

pytestmark = pytest.mark.browser


@pytest.fixture
def heads(tiny_target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two measured heads of the target that is loaded, and one that is not measured."""
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    weights = tiny_target.fingerprint.weights
    for method, first in (("eagle", 0.5), ("hydra", 0.6)):
        install(tmp_path, method, full_report(method, first, target=ReportTarget("tiny-llama", weights)), trained_against=weights)
    install(tmp_path, "medusa", trained_against=weights)


def choose(page: Any, place: str, name: str) -> None:
    page.locator(f"#{place} input").click()
    page.get_by_role("option", name=name, exact=True).click()


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 375)])
def test_a_head_report_is_one_click_away_and_leads_back(visit: Any, heads: None, theme: str, width: int) -> None:
    page = visit(f"?__theme={theme}", width=width)
    choose(page, "live-drafter", "eagle")
    page.locator("#live-report").click()
    summary = page.locator("#heads-summary")
    expect(summary.locator("h2")).to_have_text("eagle")
    expect(summary).to_contain_text("Trained and measured against exactly the target")
    for plot in ("tree_size", "depth", "calibration", "learning", "loss"):
        drawn = page.locator(f"#heads-plot-{plot} .main-svg").first
        expect(drawn).to_be_visible()
        assert (drawn.bounding_box() or {})["width"] > 200
    expect(page.locator("#heads-plot-depth .legendtext")).to_have_text(["eagle", "hydra"])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    choose(page, "heads-pick", "medusa")
    expect(summary).to_contain_text("Not measured yet. Measure it with: python -m specviz report medusa")
    expect(page.locator("#heads-plot-depth")).to_be_hidden()
    choose(page, "heads-pick", "hydra")
    expect(page.locator("#heads-plot-depth .legendtext")).to_have_text(["hydra", "eagle"])
    with page.expect_download() as download:
        page.get_by_text("Download report.json").click()
    assert download.value.suggested_filename == "hydra-report.json"
    page.locator("#heads-draft").click()
    expect(page.locator("#live-run")).to_be_visible()
    expect(page.locator("#live-drafter input")).to_have_value("hydra")
