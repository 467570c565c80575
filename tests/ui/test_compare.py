"""The compare page's handlers: two runs that differ in one thing, both against plain decoding, side by side."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from apps import LOOPING, compare_page, make_app, request
from players import Open

from specviz.target import Target
from specviz.ui.pages.compare import PREFIX, ComparePage
from specviz.ui.side_by_side import table
from specviz.ui.theme import STYLE
from specviz.ui.widgets.player import Player


@pytest.fixture(scope="module")
def compare(tiny_target: Target) -> ComparePage:
    return compare_page(make_app(tiny_target))


def values(compare: ComparePage, axis: str, a: str, b: str, **changed: Any) -> dict[Any, Any]:
    found = {part: getattr(part, "value", None) for part in {*compare.prompt.inputs, *compare.method.inputs}}
    found |= {compare.prompt.text: LOOPING, compare.prompt.length: 10, compare.axis: axis, compare.values[0]: a, compare.values[1]: b}
    return found | {{"prompt": compare.prompt.text, **compare.method.picks}[name]: value for name, value in changed.items()}


def run(compare: ComparePage, *settings: Any, **changed: Any) -> list[dict[Any, Any]]:
    compare.buttons.arm(request())
    return list(compare.decode(values(compare, *settings, **changed), request()))


def test_both_columns_run_and_are_measured_against_one_plain_run(compare: ComparePage) -> None:
    updates = run(compare, "drafter.length", "2", "8")
    kept = updates[-1][compare.kept]
    (a, b), labels = kept
    assert labels == ["Copied tokens (prompt_lookup): 2", "Copied tokens (prompt_lookup): 8"]
    assert [trace.started().meta["drafter"]["knobs"]["length"] for trace in (a, b)] == [2, 8]
    assert a.emitted() == b.emitted()  # greedy: the drafter changes the speed, never the text
    assert a.finished().baseline == b.finished().baseline
    shown = compare.finish(kept)
    assert [shown[player]["status"] for player in compare.players] == ["length", "length"]
    rows = re.findall(r'<th scope="row">(.*?)</th>', shown[compare.table])
    assert [row.split(":")[0] for row in rows] == ["A", "B", "plain decoding"]
    assert shown[compare.table].count("<td>yes</td>") == 2


def test_each_column_streams_to_its_own_player(compare: ComparePage) -> None:
    updates = run(compare, "drafter", "prompt_lookup", "autoregressive")
    order = [place for update in updates for place, player in enumerate(compare.players) if player in update]
    assert order == sorted(order)
    assert set(order) == {0, 1}


def test_another_temperature_has_its_own_plain_run(compare: ComparePage) -> None:
    (cold, hot), _ = run(compare, "temperature", "0", "0.9")[-1][compare.kept]
    assert cold.started().meta["rule"]["name"] == "greedy"
    assert hot.started().meta["rule"]["name"] == "rejection"
    assert cold.finished().baseline["token_ids"] == cold.emitted()
    assert hot.finished().baseline["token_ids"] == hot.emitted()  # deterministic children: token for token
    assert cold.emitted() != hot.emitted()


@pytest.mark.parametrize(
    ("axis", "a", "b", "expected"),
    [
        ("drafter", "prompt_lookup", "nobody", "No drafter"),
        ("drafter.length", "2", "nan", "length"),
        ("shape.nodes", "2", "4", "cannot differ here"),
        ("temperature", "0", "999", "temperature"),
        ("drafter", "prompt_lookup", "eagle", "No eagle head"),
    ],
)
def test_what_cannot_run_is_said_and_the_screen_stays(compare: ComparePage, axis: str, a: str, b: str, expected: str) -> None:
    updates = run(compare, axis, a, b)
    assert expected in updates[-1][compare.buttons.message]
    assert not any(player in update for update in updates for player in compare.players)
    assert compare.finish(updates[-1][compare.kept]) == gr.skip()


def test_stop_keeps_both_columns(compare: ComparePage) -> None:
    compare.buttons.arm(request())
    updates = []
    for update in compare.decode(values(compare, "drafter.length", "2", "8"), request()):
        updates.append(update)
        if compare.players[1] in update:
            compare.buttons.ask_stop(request())
    (a, b), _ = updates[-1][compare.kept]
    assert a.finished().reason == "length"
    assert b.finished().reason == "stopped"
    assert "Stopped" in updates[-1][compare.buttons.message]
    assert "–" in compare.finish(updates[-1][compare.kept])[compare.table]


def test_what_can_differ_follows_the_method(compare: ComparePage) -> None:
    offered, *pair = compare.offer_axes("eagle", "dynamic", "greedy", "shape.nodes")
    assert offered["value"] == "shape.nodes"
    assert ("Nodes (dynamic)", "shape.nodes") in offered["choices"]
    assert pair[0]["value"] != pair[1]["value"]
    offered, *_ = compare.offer_axes("prompt_lookup", None, "greedy", "shape.nodes")
    assert offered["value"] == "drafter"
    assert [update["value"] for update in compare.offer_values("prompt_lookup", None, "greedy", "temperature")] == ["0", "0.7"]


def test_the_table_escapes_labels(compare: ComparePage) -> None:
    (a, b), _ = run(compare, "drafter.length", "2", "8")[-1][compare.kept]
    assert "<img" not in table((a, b), ["<img src=x>", "B"])


def test_recorded_runs_are_called_recorded_until_ones_own_replace_them(tiny_target: Target, tmp_path: Path, compare: ComparePage) -> None:
    kept = run(compare, "drafter.length", "2", "8")[-1][compare.kept]
    for letter, trace in zip("ab", kept[0], strict=True):
        trace.save(tmp_path / f"{letter}.jsonl.gz")
    fresh = compare_page(make_app(tiny_target, traces=tmp_path))
    assert "Two recorded runs." in fresh.table.value
    assert all("recorded" in title.value for title in fresh.titles)
    shown = fresh.finish(kept)
    assert not any("recorded" in shown[part] for part in (fresh.table, *fresh.titles))


@pytest.mark.browser
def test_the_table_fits_the_room_it_has_on_a_page_of_usual_width(show: Open, compare: ComparePage) -> None:
    (a, b), _ = run(compare, "drafter.length", "2", "8")[-1][compare.kept]
    with gr.Blocks() as demo:
        gr.HTML(table((a, b), ["A: Copied tokens (prompt_lookup): 2", "B: Copied tokens (prompt_lookup): 8"]), elem_id=f"{PREFIX}-table")
        Player(None)
    page = show(demo, width=940)  # a window of 1280 less the controls
    page.add_style_tag(path=STYLE)
    assert page.locator(".app-table").evaluate("box => box.scrollWidth - box.clientWidth") == 0
