"""The player in a real browser: what it draws is what the trace holds; it fits any width, in both themes."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from players import Open, one, where
from playwright.sync_api import expect

from specviz.analysis.layout import layout
from specviz.trace import Trace
from specviz.ui.widgets import player as module
from specviz.ui.widgets.player import SCRIPTS, STYLES, Player


def test_every_file_of_the_widget_is_used_and_templates_stay_constant() -> None:
    here = Path(module.__file__).parent
    assert {path.stem for path in here.glob("*.js")} == set(SCRIPTS)
    assert {path.stem for path in here.glob("*.css")} == set(STYLES)
    made = Player({"run": "${1}", "rounds": []})
    assert made.html_template == '<div class="specviz-player"></div>'
    for mark in ("{{", "${", "`", "\\"):
        assert mark not in made.css_template, "Gradio reads the style as a template"


def test_scripts_never_write_markup() -> None:
    code = module.read(SCRIPTS, "js")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function", code)


def test_names_of_the_shared_scope_are_declared_once() -> None:
    names = re.findall(r"^(?:function|const|let) (\w+)", module.read(SCRIPTS, "js"), re.MULTILINE)
    assert sorted(names) == sorted(set(names))


def test_a_player_leaves_no_stub_beside_its_source() -> None:
    assert not Path(module.__file__).with_suffix(".pyi").exists()


@pytest.mark.browser
def test_it_opens_on_the_round_that_shows_most_and_says_the_numbers(show: Open, shown: dict[str, Any]) -> None:
    page, best = show(one(shown)), shown["start"]
    expect(where(page)).to_have_text(f"Round {best + 1} of {shown['total']}")
    numbers = page.locator(".sv-num b")
    expect(numbers.nth(0)).to_have_text(shown["summary"]["says"]["tau"])
    expect(numbers.nth(1)).to_have_text(str(shown["summary"]["tokens"]))
    expect(numbers.nth(2)).to_have_text(str(shown["summary"]["forwards"]))
    expect(numbers.nth(3)).to_have_text("no baseline yet")
    expect(page.locator(".sv-tok")).to_have_count(1 + sum(len(one["strip"]) for one in shown["rounds"]))
    assert page.locator(".sv-strip").evaluate("e => e.textContent") == shown["first"]["text"] + "".join(
        spot[0] for one in shown["rounds"] for spot in one["strip"]
    )
    verdicts = shown["rounds"][best]["node"]["verdict"]
    for kind in set(verdicts):
        expect(page.locator(f".sv-tree .sv-node.{kind}")).to_have_count(verdicts.count(kind))
    expect(page.locator(".sv-tree .sv-node.bonus")).to_have_count(1)


@pytest.mark.browser
def test_nodes_lie_where_the_layout_puts_them(show: Open, shown_trace: Trace, shown: dict[str, Any]) -> None:
    page, best = show(one(shown)), shown["start"]
    verified, drafted = shown_trace.rounds()[best].verified, shown_trace.rounds()[best].drafted
    end = verified.path[-1] if verified.path else 0
    expected = layout((*drafted.parents, end))  # the bonus is a leaf of its own
    drawn = page.locator(".sv-tree .sv-node").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.key.split(':')[1], ...n.getAttribute('transform').match(/[\\d.]+/g).map(Number)])"
    )
    place = {len(drafted.tokens) if name == "bonus" else int(name): (x, y) for name, x, y in drawn}
    assert len(place) == len(expected.row)
    tops = sorted(place[node][1] for node in range(len(expected.row)) if expected.row[node] == int(expected.row[node]))
    step = (tops[-1] - tops[0]) / (expected.rows - 1)
    for node, row in enumerate(expected.row):
        assert place[node][1] - tops[0] == pytest.approx(row * step, abs=0.5)
    columns = {column: {round(place[node][0], 2) for node in place if expected.column[node] == column} for column in set(expected.column)}
    assert all(len(xs) == 1 for xs in columns.values()), "one column per depth"
    assert sorted(columns, key=lambda column: min(columns[column])) == sorted(columns)
    assert min(b - a for a, b in pairwise(tops) if b > a) >= 8


@pytest.mark.browser
def test_without_a_value_it_says_so(show: Open) -> None:
    page = show(one(None, empty="Press Run."))
    expect(page.get_by_text("Press Run.")).to_be_visible()
    expect(page.locator(".sv-body")).to_be_hidden()


@pytest.mark.browser
@pytest.mark.parametrize(("width", "compact"), [(375, False), (375, True), (820, False), (1600, False)])
def test_it_fits_any_width_and_the_tree_scrolls_in_its_own_box(show: Open, shown: dict[str, Any], width: int, compact: bool) -> None:
    page = show(one(shown, compact=compact), width=width)
    expect(page.locator(".sv-tree .sv-node").first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box, end = page.locator(".sv-tree").bounding_box(), page.locator(".sv-tree .sv-node.bonus").bounding_box()
    assert box
    assert end
    assert box["x"] <= end["x"]
    assert end["x"] + end["width"] <= box["x"] + box["width"] + 1, "the accepted path is in view"


@pytest.mark.browser
def test_dark_and_light_keep_their_contrast(show: Open, shown: dict[str, Any]) -> None:
    page = show(one(shown), "?__theme=dark")
    for theme in ("dark", "light"):
        page.evaluate("theme => document.body.classList.toggle('dark', theme === 'dark')", theme)
        page.wait_for_timeout(150)
        for spot in (".sv-say", ".sv-more", ".sv-num small", ".sv-legend", ".sv-what .sv-verdict"):
            ratio = page.locator(spot).first.evaluate(CONTRAST)
            assert ratio >= 4.5, f"{spot} in {theme}: {ratio:.1f}"


CONTRAST = """element => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
  const light = (colour) => rgb(colour).slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let back = element;
  while (rgb(getComputedStyle(back).backgroundColor)[3] < 255) back = back.parentElement;
  const [a, b] = [light(getComputedStyle(element).color), light(getComputedStyle(back).backgroundColor)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""
