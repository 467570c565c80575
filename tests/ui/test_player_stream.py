"""The player while a run streams, in groups, and with token texts that would like to be code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
from players import Open, one, where
from playwright.sync_api import expect

from specviz.events import Drafted, Finished, Prefilled, Started, Verified
from specviz.trace import Trace
from specviz.ui import view
from specviz.ui.widgets.player import Player

HOSTILE = ("<img src=x onerror=window.hacked=1>", "{{7*7}}", "${window.hacked=2}", "`;window.hacked=3;`", "</script><script>window.hacked=4</script>")


@pytest.mark.browser
def test_a_running_view_is_followed_until_the_person_looks_elsewhere(show: Open, shown_trace: Trace) -> None:
    steps: list[Any] = []
    growing = Trace()
    for event in shown_trace.replay():
        growing.events.append(event)
        if isinstance(event, Verified):
            steps.append(view.tail(growing))
    total, allowed = len(steps), {"until": 3}
    lost = [step for i, step in enumerate(steps) if i != 1]  # updates may be coalesced

    def stream() -> Iterator[Any]:
        for i, step in enumerate(lost):
            while i >= allowed["until"]:
                time.sleep(0.02)
            yield step
            time.sleep(0.05)
        yield view.whole(shown_trace)

    with gr.Blocks() as demo:
        player = Player(None, elem_id="player")
        gr.Button("go").click(stream, None, player, show_progress="hidden")
    page = show(demo)
    page.get_by_role("button", name="go", exact=True).click()
    expect(where(page)).to_have_text("Round 4 of 4")
    expect(page.locator(".sv-status")).to_have_text("live")
    page.get_by_role("button", name="First round").click()
    expect(page.get_by_role("button", name="Follow the newest round")).to_be_visible()
    allowed["until"] = 5
    expect(where(page)).to_have_text("Round 1 of 6")
    page.get_by_role("button", name="Follow the newest round").click()
    expect(where(page)).to_have_text("Round 6 of 6")
    allowed["until"] = total
    expect(where(page)).to_have_text(f"Round {total} of {total}")
    expect(page.locator(".sv-status")).to_contain_text("ended")
    whole = view.whole(shown_trace)
    assert page.locator(".sv-strip").evaluate("e => e.textContent") == whole["first"]["text"] + "".join(
        spot[0] for told in whole["rounds"] for spot in told["strip"]
    )
    expect(page.locator(".sv-hole")).to_have_count(0)


@pytest.mark.browser
def test_rounds_that_were_coalesced_away_show_as_holes_until_the_last_value(show: Open, shown: dict[str, Any]) -> None:
    holed = shown | {"status": "running", "from": 3, "rounds": shown["rounds"][3:]}
    page = show(one(holed))
    expect(page.locator(".sv-hole")).to_have_count(3)
    page.get_by_role("button", name="First round").click()
    expect(page.get_by_text("This round has not arrived yet.")).to_be_visible()


@pytest.mark.browser
def test_players_of_a_group_scrub_together_and_a_seek_moves_without_an_echo(show: Open, shown: dict[str, Any]) -> None:
    with gr.Blocks() as demo:
        with gr.Row():
            first = Player(shown, compact=True, group="pair", elem_id="a")
            Player(shown | {"start": 0}, compact=True, group="pair", elem_id="b")
        Player(shown, elem_id="c")
        gr.Button("seek").click(lambda: {"seek": 1}, None, first, show_progress="hidden")
    page = show(demo, width=1400)
    page.locator("#a").get_by_role("button", name="Last round").click()
    for name in ("#a", "#b"):
        expect(page.locator(f"{name} .sv-where")).to_have_text(f"Round {shown['total']} of {shown['total']}")
    expect(page.locator("#c .sv-where")).to_have_text(f"Round {shown['start'] + 1} of {shown['total']}")
    page.get_by_role("button", name="seek", exact=True).click()
    expect(page.locator("#a .sv-where")).to_have_text(f"Round 2 of {shown['total']}")
    expect(page.locator("#b .sv-where")).to_have_text(f"Round {shown['total']} of {shown['total']}")


def hostile(trace: Trace) -> Trace:
    """The same run with every token's text replaced by something that would like to be markup or code."""
    texts = {str(token): HOSTILE[token % len(HOSTILE)] for token in trace.strings}
    events = []
    for event in trace.events:
        if isinstance(event, (Prefilled, Drafted, Verified)):
            event = replace(event, strings={token: texts[token] for token in event.strings})
        if isinstance(event, Started):
            event = replace(event, prompt=HOSTILE[0], strings={token: texts[token] for token in event.strings})
        if isinstance(event, Finished):
            event = replace(event, text=HOSTILE[2], message=HOSTILE[0])
        events.append(event)
    return Trace(events)


@pytest.mark.browser
def test_hostile_token_text_is_shown_and_does_nothing(show: Open, shown_trace: Trace) -> None:
    page = show(one(view.whole(hostile(shown_trace))))
    page.get_by_text("As a table").click()
    page.get_by_role("button", name="Larger").click()
    page.get_by_role("button", name="Next round").click()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator(".sv img, .sv script").count() == 0
    text = page.locator(".sv-strip").evaluate("e => e.textContent")
    assert all(piece in text for piece in HOSTILE)
