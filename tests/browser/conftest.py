"""The whole app in a real browser, on a tiny target; every test also asserts: no page error, no request to another host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from apps import LOOPING, SETTINGS, make_app, served
from growing import run_growing
from playwright.sync_api import Page, expect
from ui.conftest import browser_type_launch_args  # noqa: F401  Debian's chromium, Playwright's own, or a skip that says so

from specviz.build import Spec
from specviz.events import Event, Verified
from specviz.target import Target
from specviz.trace import Trace
from specviz.ui.app import App
from specviz.ui.build import serve
from specviz.ui.engine import Ask
from specviz.ui.runs import play

PATIENCE = 60_000  # milliseconds; machines that test are often busy


@dataclass(frozen=True)
class Served:
    """A running app and where it is."""

    app: App
    url: str
    demo: gr.Blocks


Visit = Callable[..., Page]


@pytest.fixture(scope="session")
def recorded(tiny_target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recorded runs: one with trees, and two of the same prompt for the compare page."""
    folder = tmp_path_factory.mktemp("traces")
    run_growing(tiny_target, knobs={"nodes": 16, "depth": 4, "top_k": 4}, new=24, noise=1.0).save(folder / "1-trees.jsonl.gz")
    engine = make_app(tiny_target).engine
    for length in (2, 8):
        last = list(play(engine, Ask(LOOPING, Spec("prompt_lookup", None, {"length": length}), max_new_tokens=16), plain=True))[-1]
        assert isinstance(last.trace, Trace)
        last.trace.save(folder / f"2-length-{length}.jsonl.gz")
    return folder


@pytest.fixture(scope="module")
def site(tiny_target: Target, recorded: Path) -> Iterator[Served]:
    expect.set_options(timeout=PATIENCE)
    app = make_app(tiny_target, recorded, SETTINGS)
    demo = served(app)
    yield Served(app, serve(demo)[1], demo)
    demo.close()


@pytest.fixture
def slowly(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every round of a run a quarter of a second, so that there is a middle to stop in."""
    events = site.app.engine.events

    def slow(*arguments: Any, **options: Any) -> Iterator[Event]:
        for event in events(*arguments, **options):
            if isinstance(event, Verified):
                time.sleep(0.25)
            yield event

    monkeypatch.setattr(site.app.engine, "events", slow)


@pytest.fixture
def visit(page: Page, site: Served) -> Iterator[Visit]:
    """Opens the app: visit(query="", width=1200, height=900)."""
    problems: list[str] = []
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: None if request.url.startswith((site.url, "data:", "blob:")) else problems.append(f"request to {request.url}"))

    def go(query: str = "", width: int = 1200, height: int = 900) -> Page:
        page.set_viewport_size({"width": width, "height": height})
        page.goto(site.url + query)
        expect(page.locator("#live-player .sv-tok").first).to_be_visible()
        return page

    yield go
    assert problems == []
