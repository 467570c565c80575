"""What a person does with the app: look, run, stop, scrub, select, compare, open a file, on a phone, in the dark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apps import LOOPING
from playwright.sync_api import Page, expect

from specviz.trace import Trace

pytestmark = pytest.mark.browser
HOSTILE = ("<img src=x onerror=window.hacked=1>", "{{7*7}}", "${window.hacked=2}", "</script><script>window.hacked=3</script>")


def run(page: Page, *, prompt: str = LOOPING, length: int = 16) -> None:
    """Fills prompt and length and presses Run."""
    page.get_by_label("Prompt", exact=True).first.fill(prompt)
    page.locator("#live-length input[type=number]").fill(str(length))
    page.locator("#live-length input[type=number]").press("Enter")
    page.locator("#live-run").click()


def finished(page: Page, prefix: str = "live") -> None:
    expect(page.locator(f"#{prefix}-run")).to_be_visible()


def round_now(page: Page, player: str = "#live-player") -> int:
    return int(page.locator(f"{player} .sv-where b").inner_text())


def test_the_first_screen_is_a_drawn_recording(visit: Any) -> None:
    page = visit()
    expect(page.get_by_text("A recorded run.")).to_be_visible()
    assert page.locator("#live-player [role=treeitem]").count() > 3
    expect(page.locator("#live-plot-race .main-svg").first).to_be_visible()
    expect(page.locator("#engine")).to_contain_text("ready: tiny-llama on CPU")


def test_a_run_streams_and_ends_with_a_measured_speed_up(visit: Any) -> None:
    page = visit()
    run(page)
    expect(page.get_by_text("Your run.")).to_be_visible()
    finished(page)
    expect(page.locator("#live-speed")).to_contain_text("tokens per second, same prompt and seed")
    expect(page.locator("#live-player .sv-num").nth(1)).to_contain_text("16")
    expect(page.locator("#live-player .sv-num").nth(3)).to_contain_text("×")
    assert page.locator("#live-player .sv-tok").count() == 16


def test_stop_in_the_middle_keeps_what_was_decoded(visit: Any, slowly: None) -> None:
    page = visit()
    run(page, length=64)
    expect(page.locator("#live-player .sv-status")).to_contain_text("live")
    page.locator("#live-stop").click()
    finished(page)
    expect(page.locator("#live-message")).to_contain_text("Stopped")
    expect(page.locator("#live-player .sv-status")).to_contain_text("stopped")
    assert 0 < page.locator("#live-player .sv-tok").count() < 64


def test_a_bad_prompt_is_answered_and_nothing_on_screen_is_lost(visit: Any) -> None:
    page = visit()
    before = page.locator("#live-player .sv-strip").inner_text()
    for prompt, said in (("", "The prompt is empty"), ("word " * 500, "reads at most 200")):
        run(page, prompt=prompt)
        expect(page.locator("#live-message [role=alert]")).to_contain_text(said)
        expect(page.locator("#live-run")).to_be_visible()
        assert page.get_by_label("Prompt", exact=True).first.input_value() == prompt
        assert page.locator("#live-player .sv-strip").inner_text() == before


def test_scrubbing_by_buttons_keys_and_ribbon(visit: Any) -> None:
    page = visit()
    player = page.locator("#live-player")
    player.get_by_role("button", name=re.compile("First round")).click()
    assert round_now(page) == 1
    player.get_by_role("button", name=re.compile("Next round")).click()
    assert round_now(page) == 2
    ribbon = player.get_by_role("slider", name="Round")
    ribbon.focus()
    page.keyboard.press("ArrowRight")
    assert round_now(page) == 3
    page.keyboard.press("End")
    last = round_now(page)
    assert last == int(ribbon.get_attribute("aria-valuemax") or 0)
    page.keyboard.press("Home")
    assert round_now(page) == 1
    player.locator(".sv-bar").nth(2).click()
    assert round_now(page) == 3


def test_selecting_by_mouse_and_by_keyboard_explains(visit: Any) -> None:
    page = visit()
    why = page.locator("#live-player .sv-why")
    nodes = page.locator("#live-player [role=treeitem]")
    nodes.nth(1).click()
    expect(nodes.nth(1)).to_have_attribute("aria-selected", "true")
    first = why.inner_text()
    assert re.search(r"Accepted|Rejected|Never", first)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert why.inner_text() != first
    token = page.locator("#live-player .sv-tok").nth(2)
    token.click()
    expect(why).to_contain_text(re.compile(r"."))


def test_only_knobs_that_apply_are_shown(visit: Any) -> None:
    page = visit()
    expect(page.locator("#live-shape")).to_be_hidden()
    expect(page.locator("#live-drafter-prompt_lookup-length")).to_be_visible()
    pick(page, "live-drafter", "eagle")
    expect(page.locator("#live-shape")).to_be_visible()
    expect(page.locator("#live-drafter-prompt_lookup-length")).to_be_hidden()
    expect(page.locator("#live-shape-dynamic-nodes")).to_be_visible()
    pick(page, "live-rule", "typical")
    expect(page.locator("#live-rule")).to_contain_text("LOSSY")


def test_greedy_above_temperature_0_becomes_rejection_and_says_so(visit: Any) -> None:
    page = visit()
    box = page.locator("#live-temperature input[type=number]")
    box.fill("0.7")
    box.press("Enter")
    box.blur()
    expect(page.locator("#live-note")).to_contain_text("works at temperature 0 only")
    expect(page.locator("#live-rule input")).to_have_value("rejection")


def test_presets_and_seed_fill_the_form(visit: Any) -> None:
    page = visit()
    page.get_by_role("button", name="JSON", exact=True).first.click()
    expect(page.get_by_label("Prompt", exact=True).first).to_have_value(re.compile("JSON list"))
    page.locator("#live-new-seed").click()
    expect(page.locator("#live-seed input")).not_to_have_value("0")


def test_comparing_two_runs_with_one_shared_scrubber(visit: Any) -> None:
    page = visit()
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator("#compare-table")).to_contain_text("plain decoding")
    page.get_by_label("Prompt", exact=True).last.fill(LOOPING)
    page.locator("#compare-length input[type=number]").fill("12")
    pick(page, "compare-axis", "Copied tokens (prompt_lookup)")
    page.locator("#compare-run").click()
    expect(page.locator("#compare-table")).to_contain_text("A: Copied tokens (prompt_lookup): 10")
    expect(page.locator("#compare-table tbody tr")).to_have_count(3)
    finished(page, "compare")
    a = page.locator("#compare-player-a")
    a.get_by_role("button", name=re.compile("First round")).click()
    a.get_by_role("button", name=re.compile("Next round")).click()
    assert (round_now(page, "#compare-player-a"), round_now(page, "#compare-player-b")) == (2, 2)


def test_a_saved_trace_opens_and_a_download_is_the_same(visit: Any, recorded: Path, tmp_path: Path) -> None:
    page = visit()
    path = recorded / "2-length-8.jsonl.gz"
    page.locator("#live-open input[type=file], input[type=file]").first.set_input_files(str(path))
    expect(page.get_by_text("Opened file.")).to_be_visible()
    with page.expect_download() as download:
        page.locator("#live-download").click()
    saved = tmp_path / "again.jsonl.gz"
    download.value.save_as(saved)
    assert Trace.load(saved).dumps().splitlines()[1:] == Trace.load(path).dumps().splitlines()[1:]


def test_a_refused_run_leaves_an_opened_file_on_screen(visit: Any, recorded: Path) -> None:
    page = visit()
    run(page, length=8)
    expect(page.get_by_text("Your run.")).to_be_visible()
    expect(page.locator("#live-run")).to_be_visible()
    page.locator("input[type=file]").first.set_input_files(str(recorded / "1-trees.jsonl.gz"))
    expect(page.get_by_text("Opened file.")).to_be_visible()
    run(page, prompt="")
    expect(page.locator("#live-message [role=alert]")).to_contain_text("empty")
    expect(page.locator("#live-run")).to_be_visible()
    page.wait_for_timeout(1500)
    expect(page.get_by_text("Opened file.")).to_be_visible()


def test_a_bad_file_says_why_and_the_screen_stays(visit: Any, tmp_path: Path) -> None:
    page = visit()
    before = page.locator("#live-player .sv-strip").inner_text()
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"hello": "<img src=x onerror=window.hacked=1>"}))
    page.locator("input[type=file]").first.set_input_files(str(bad))
    expect(page.locator("#live-notice [role=alert]")).to_contain_text("is not a specviz trace")
    assert page.locator("#live-player .sv-strip").inner_text() == before


def test_hostile_token_text_and_prompt_are_inert(visit: Any, recorded: Path, tmp_path: Path) -> None:
    trace = Trace.load(recorded / "1-trees.jsonl.gz")
    spoilt = Trace([_spoil(event) for event in trace.events])
    page = visit()
    page.locator("input[type=file]").first.set_input_files(str(spoilt.save(tmp_path / "hostile.jsonl")))
    expect(page.get_by_text("Opened file.")).to_be_visible()
    expect(page.locator("#live-player .sv-strip")).to_contain_text("<img src=x")
    page.locator("#live-player [role=treeitem]").nth(1).click()
    run(page, prompt=" ".join(HOSTILE))
    expect(page.get_by_text("Your run.")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.locator("#live-player img").count() == 0


def _spoil(event: Any) -> Any:
    changed = {}
    if getattr(event, "strings", None):
        changed["strings"] = {token: HOSTILE[int(token) % len(HOSTILE)] for token in event.strings}
    if getattr(event, "prompt", None):
        changed["prompt"] = " ".join(HOSTILE)
    return replace(event, **changed) if changed else event


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_nothing_scrolls_sideways(visit: Any, theme: str) -> None:
    page = visit(f"?__theme={theme}", width=375, height=800)
    for tab in ("Live", "Compare"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(f"#{tab.lower()}-run")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert page.evaluate("document.body.scrollWidth") <= 375


def test_dark_mode_is_dark_everywhere(visit: Any) -> None:
    page = visit("?__theme=dark")
    for selector in ("body", "#live-player .sv-card", ".app-card", "#live-prompt textarea"):
        colour = page.locator(selector).first.evaluate("node => getComputedStyle(node).backgroundColor")
        channels = [float(part) for part in re.findall(r"[\d.]+", colour)]
        assert len(channels) == 3 or channels[3] > 0, selector
        assert max(channels[:3]) < 90, (selector, colour)


def test_two_visitors_do_not_see_each_other(visit: Any, browser: Any, site: Any) -> None:
    page = visit()
    before = page.locator("#live-player .sv-strip").inner_text()
    other = browser.new_page()
    other.goto(site.url)
    run(other, length=12)
    expect(other.get_by_text("Your run.")).to_be_visible()
    assert page.locator("#live-player .sv-strip").inner_text() == before
    assert page.get_by_text("A recorded run.").is_visible()
    other.close()


def test_a_full_queue_is_said_and_gives_the_run_button_back(browser: Any, site: Any, slowly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.demo._queue, "max_size", 1)
    pages = [browser.new_page() for _ in range(3)]
    for page in pages:
        page.goto(site.url)
        expect(page.locator("#live-player .sv-tok").first).to_be_visible()
    running, waiting, refused = pages
    run(running, length=64)
    expect(running.locator("#live-message")).to_contain_text("Round")
    run(waiting, length=64)
    expect(waiting.locator("#live-message")).to_contain_text("Waiting")
    run(refused)
    expect(refused.locator("#live-message [role=alert]")).to_contain_text("too many runs may be waiting")
    expect(refused.locator("#live-run")).to_be_visible()
    for page in (waiting, running):
        page.locator("#live-stop").click()
    for page in pages:
        expect(page.locator("#live-run")).to_be_visible()
        page.close()


def pick(page: Page, elem_id: str, option: str) -> None:
    """Chooses an option of a dropdown."""
    page.locator(f"#{elem_id} input").click()
    page.get_by_role("option", name=option, exact=True).click()
