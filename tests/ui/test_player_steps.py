"""The player by mouse and by keyboard: stepping through rounds, selecting nodes and tokens, folding."""

from __future__ import annotations

import re
from typing import Any

import gradio as gr
import pytest
from players import Open, key, one, where
from playwright.sync_api import expect

from specviz.ui.widgets.player import Player


@pytest.mark.browser
def test_buttons_and_keys_step_through_the_rounds(show: Open, shown: dict[str, Any]) -> None:
    page, last = show(one(shown)), shown["total"]
    page.get_by_role("button", name="First round").click()
    expect(where(page)).to_have_text(f"Round 1 of {last}")
    page.get_by_role("button", name="Next round").click()
    expect(where(page)).to_have_text(f"Round 2 of {last}")
    page.get_by_role("button", name="Previous round").click()
    page.get_by_role("button", name="Previous round").click()
    expect(where(page)).to_have_text(f"Round 1 of {last}")
    page.get_by_role("button", name="Last round").click()
    expect(where(page)).to_have_text(f"Round {last} of {last}")
    slider = page.get_by_role("slider", name="Round")
    slider.focus()
    for press, number in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", last), ("PageUp", last - 1)):
        page.keyboard.press(press)
        expect(where(page)).to_have_text(f"Round {number} of {last}")
        expect(slider).to_have_attribute("aria-valuenow", str(number))
        expect(page.locator(".sv-live")).to_have_text(shown["rounds"][number - 1]["live"])
    expect(slider).to_be_focused()


@pytest.mark.browser
def test_playing_moves_on_and_step_by_step_shows_draft_verify_accept(show: Open, shown: dict[str, Any]) -> None:
    page = show(one(shown))
    page.get_by_role("button", name="First round").click()
    page.get_by_label("Speed").select_option("4")
    page.get_by_role("button", name="Play").click()
    expect(where(page)).not_to_have_text(f"Round 1 of {shown['total']}")
    page.get_by_role("button", name="Pause").click()
    stopped = where(page).inner_text()
    page.wait_for_timeout(600)
    assert where(page).inner_text() == stopped
    page.get_by_role("button", name="First round").click()
    page.get_by_label("Speed").select_option("0")
    page.locator(".sv-ribbon svg").focus()
    page.keyboard.press("Space")
    for phase in ("draft", "verify", "accept"):
        expect(page.locator(f'.sv[data-phase="{phase}"]')).to_be_attached()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


@pytest.mark.browser
def test_phases_hide_what_is_not_known_yet(show: Open, shown: dict[str, Any]) -> None:
    page = show(one(shown))
    page.get_by_role("button", name="1 Draft").click()
    expect(page.locator(".sv-tree .sv-node.bonus")).to_be_hidden()
    expect(page.locator(".sv-tree .sv-p").first).to_be_hidden()
    expect(page.locator(".sv-say")).to_be_hidden()
    page.get_by_role("button", name="2 Verify").click()
    expect(page.locator(".sv-tree .sv-p").first).to_be_visible()
    expect(page.locator(".sv-tree .sv-node.bonus")).to_be_hidden()
    page.get_by_role("button", name="3 Accept").click()
    expect(page.locator(".sv-tree .sv-node.bonus")).to_be_visible()
    expect(page.locator(".sv-say")).to_be_visible()


@pytest.mark.browser
def test_the_words_of_a_phase_and_of_the_speed_up_are_those_of_the_page(show: Open, shown: dict[str, Any]) -> None:
    faster = {**shown, "summary": {**shown["summary"], "speedup": 1.39, "says": {**shown["summary"]["says"], "speedup": "1.39"}}}
    page = show(one(faster))
    expect(page.locator(".sv-ms dt")).to_have_text(["draft", "verify", "accept", "commit"])
    expect(page.locator(".sv-num small").last).to_contain_text("as fast as plain decoding")
    assert "judge" not in page.locator(".sv").inner_text().lower()


@pytest.mark.browser
def test_the_ribbon_is_dragged_and_tells_the_page(show: Open, shown: dict[str, Any]) -> None:
    with gr.Blocks() as demo:
        player = Player(shown, elem_id="player")
        told = gr.Textbox(label="told")
        player.round_select(tell_round, None, told, queue=False, show_progress="hidden")
    page = show(demo)
    first, fifth = page.locator('.sv-bar[data-round="0"] .sv-hit').bounding_box(), page.locator('.sv-bar[data-round="4"] .sv-hit').bounding_box()
    assert first
    assert fifth
    page.mouse.move(first["x"] + first["width"] / 2, first["y"] + 5)
    page.mouse.down()
    expect(where(page)).to_have_text(f"Round 1 of {shown['total']}")
    page.mouse.move(fifth["x"] + fifth["width"] / 2, fifth["y"] + 200, steps=6)
    page.mouse.up()
    expect(where(page)).to_have_text(f"Round 5 of {shown['total']}")
    expect(page.get_by_label("told")).to_have_value("0/4")


def tell_round(event: gr.EventData) -> str:
    return f"{event.row}/{event.round}"


@pytest.mark.browser
def test_a_click_pins_a_node_its_token_and_its_bar_and_says_why(show: Open, shown: dict[str, Any]) -> None:
    with gr.Blocks() as demo:
        player = Player(shown, elem_id="player")
        told = gr.Textbox(label="told")
        player.node_select(tell_node, None, told, queue=False, show_progress="hidden")
    page, best = show(demo), shown["start"]
    told_round = shown["rounds"][best]
    node = told_round["path"][0]
    key(page, best, node).click()
    for part in (".sv-tree", ".sv-strip", ".sv-ribbon"):
        expect(key(page, best, node, part)).to_have_class(re.compile("pinned"))
    sentence = told_round["say"][told_round["node"]["why"][node][0]]
    assert sentence.startswith("Accepted: ")
    expect(page.locator(".sv-verdict").first).to_have_text("Accepted")
    expect(page.locator(".sv-say")).to_have_text(re.sub("[“”]", "", sentence.removeprefix("Accepted: ").capitalize()), ignore_case=True)
    expect(page.get_by_label("told")).to_have_value(f"{best}/{node}")
    rejected = next(i for i, verdict in enumerate(told_round["node"]["verdict"]) if verdict in ("rejected", "unreached", "untested"))
    key(page, best, rejected).hover()
    expect(page.locator(".sv-why")).to_contain_text("peeking")
    page.mouse.move(2, 2)
    expect(page.locator(".sv-pin")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".sv-pin")).to_have_count(0)


def tell_node(event: gr.EventData) -> str:
    return f"{event.round}/{event.node}"


@pytest.mark.browser
def test_a_token_of_another_round_brings_its_round(show: Open, shown: dict[str, Any]) -> None:
    page, other = show(one(shown)), 0 if shown["start"] else 1
    key(page, other, "bonus", ".sv-strip").click()
    expect(where(page)).to_have_text(f"Round {other + 1} of {shown['total']}")
    expect(key(page, other, "bonus")).to_have_class(re.compile("pinned"))
    key(page, -1, "first", ".sv-strip").click()
    expect(page.locator(".sv-say")).to_contain_text("first token comes from reading the prompt")


@pytest.mark.browser
def test_the_tree_is_walked_by_keys_as_a_tree(show: Open, shown: dict[str, Any]) -> None:
    page, best = show(one(shown)), shown["start"]
    tree = shown["rounds"][best]["node"]
    children = [i for i, parent in enumerate(tree["parent"]) if parent == 0]
    stop = page.locator('.sv-tree [role="treeitem"][tabindex="0"]')
    expect(stop).to_have_count(1)
    stop.focus()
    page.keyboard.press("Home")
    expect(key(page, best, 0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(key(page, best, children[0])).to_be_focused()
    page.keyboard.press("ArrowLeft" if not any(parent == children[0] for parent in tree["parent"]) or tree["verdict"][children[0]] == "accepted" else "ArrowUp")
    expect(key(page, best, 0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(key(page, best, children[0])).to_be_focused()
    page.keyboard.press("Enter")
    expect(key(page, best, children[0])).to_have_attribute("aria-selected", "true")
    expect(page.locator(".sv-pin")).to_be_visible()
    expect(stop).to_have_count(1)
    before = where(page).inner_text()
    page.keyboard.press("PageDown" if best < shown["total"] - 1 else "PageUp")
    expect(where(page)).not_to_have_text(before)


@pytest.mark.browser
def test_branches_off_the_path_fold(show: Open, shown: dict[str, Any]) -> None:
    number, parent = next(
        (i, node)
        for i, told in enumerate(shown["rounds"])
        for node, verdict in enumerate(told["node"]["verdict"])
        if verdict in ("rejected", "untested") and node in told["node"]["parent"]
    )
    page = show(one(shown | {"start": number}))
    count = len(shown["rounds"][number]["node"]["text"]) + 1
    nodes = page.locator(".sv-tree .sv-node")
    expect(nodes).to_have_count(count)
    key(page, number, parent).click()
    page.keyboard.press("ArrowLeft")
    expect(key(page, number, parent)).to_have_attribute("aria-expanded", "false")
    expect(key(page, number, parent)).to_be_focused()
    assert nodes.count() < count
    page.keyboard.press("ArrowRight")
    expect(nodes).to_have_count(count)
    page.get_by_role("button", name="Fold never reached").click()
    assert nodes.count() < count
    expect(page.locator(".sv-tree .sv-node.unreached")).to_have_count(0)


@pytest.mark.browser
def test_cut_candidates_and_the_table_twin(show: Open, shown: dict[str, Any]) -> None:
    number = next(i for i, told in enumerate(shown["rounds"]) if told["cut"])
    page, told = show(one(shown | {"start": number})), shown["rounds"][number]
    expect(page.locator(".sv-tree .sv-node.pruned")).to_have_count(0)
    page.get_by_text("As a table").click()
    expect(page.locator(".sv-rows tbody tr")).to_have_count(len(told["node"]["text"]) + 1)
    page.get_by_role("button", name="Show cut candidates").click()
    expect(page.locator(".sv-tree .sv-node.pruned")).to_have_count(len(told["cut"]))
    expect(page.locator(".sv-rows tbody tr")).to_have_count(len(told["node"]["text"]) + 1 + len(told["cut"]))
    page.locator(".sv-rows tbody tr").nth(1).get_by_role("button").click()
    expect(key(page, number, 1)).to_have_class(re.compile("pinned"))
