"""The player in a real browser: what it draws is what the trace holds, and everything works by mouse and by keyboard."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from growing import run_growing
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.layout import layout
from specviz.events import Drafted, Finished, Prefilled, Started, Verified
from specviz.target import Target
from specviz.trace import Trace
from specviz.ui import view
from specviz.ui.widgets import player as module
from specviz.ui.widgets.player import SCRIPTS, STYLES, Player

HOSTILE = ("<img src=x onerror=window.hacked=1>", "{{7*7}}", "${window.hacked=2}", "`;window.hacked=3;`", "</script><script>window.hacked=4</script>")
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def trace(tiny_target: Target) -> Trace:
    return run_growing(tiny_target, knobs={"nodes": 20, "depth": 4, "top_k": 5}, new=30, noise=1.0)


@pytest.fixture(scope="module")
def shown(trace: Trace) -> dict[str, Any]:
    return view.whole(trace)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Debian's chromium where it is installed, else Playwright's own."""
    found = shutil.which("chromium")
    return {**browser_type_launch_args, "args": ["--no-sandbox", "--disable-dev-shm-usage"], **({"executable_path": found} if found else {})}


@pytest.fixture
def show(page: Page) -> Iterator[Open]:
    """Serves blocks and opens them; afterwards there must have been no page error and no request to another host."""
    served: list[gr.Blocks] = []
    problems: list[str] = []

    def serve(demo: gr.Blocks, query: str = "", width: int = 1200, height: int = 900) -> Page:
        url = launch(demo)
        served.append(demo)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith((url, "data:", "blob:")) else problems.append(f"request to {request.url}"))
        page.set_viewport_size({"width": width, "height": height})
        page.goto(url + query)
        expect(page.locator(".sv").first).to_be_attached()
        return page

    yield serve
    for demo in served:
        demo.close()
    assert problems == []


def launch(demo: gr.Blocks, tries: int = 3) -> str:
    """Serves the blocks; on a busy machine Gradio's own check of its server can time out, so that is tried again."""
    for left in reversed(range(tries)):
        try:
            return str(demo.launch(prevent_thread_lock=True, server_name="127.0.0.1", quiet=True, ssr_mode=False)[1])
        except ValueError as problem:
            if left == 0 or "localhost" not in str(problem):
                raise
            demo.close()
    raise AssertionError


def one(value: Any, **options: Any) -> gr.Blocks:
    with gr.Blocks() as demo:
        Player(value, elem_id="player", **options)
    return demo


def key(page: Page, round_number: int, node: int | str, within: str = ".sv-tree") -> Locator:
    return page.locator(f'{within} [data-key="{round_number}:{node}"]')


def where(page: Page) -> Locator:
    return page.locator(".sv-where")


# -- without a browser


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


# -- drawing


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
def test_nodes_lie_where_the_layout_puts_them(show: Open, trace: Trace, shown: dict[str, Any]) -> None:
    page, best = show(one(shown)), shown["start"]
    verified, drafted = trace.rounds()[best].verified, trace.rounds()[best].drafted
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
    assert min(b - a for a, b in zip(tops, tops[1:], strict=False) if b > a) >= 8


@pytest.mark.browser
def test_without_a_value_it_says_so(show: Open) -> None:
    page = show(one(None, empty="Press Run."))
    expect(page.get_by_text("Press Run.")).to_be_visible()
    expect(page.locator(".sv-body")).to_be_hidden()


# -- stepping


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


# -- selecting


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


# -- streaming, groups, strangers' text


@pytest.mark.browser
def test_a_running_view_is_followed_until_the_person_looks_elsewhere(show: Open, trace: Trace) -> None:
    steps: list[Any] = []
    growing = Trace()
    for event in trace.replay():
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
        yield view.whole(trace)

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
    whole = view.whole(trace)
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
def test_hostile_token_text_is_shown_and_does_nothing(show: Open, trace: Trace) -> None:
    page = show(one(view.whole(hostile(trace))))
    page.get_by_text("As a table").click()
    page.get_by_role("button", name="Larger").click()
    page.get_by_role("button", name="Next round").click()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator(".sv img, .sv script").count() == 0
    text = page.locator(".sv-strip").evaluate("e => e.textContent")
    assert all(piece in text for piece in HOSTILE)


# -- looks


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
