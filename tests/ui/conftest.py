"""What browser tests need: a chromium, or a skip that says what is missing; a page that nothing may go wrong in; a run to show."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from growing import run_growing
from players import Open, launch
from playwright.sync_api import BrowserType, Page, expect

from specviz.target import Target
from specviz.trace import Trace
from specviz.ui import view


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any], browser_type: BrowserType) -> dict[str, Any]:
    """Debian's chromium where it is installed, else Playwright's own; without either the test is skipped."""
    found = shutil.which("chromium")
    if found is None and not Path(browser_type.executable_path).exists():
        pytest.skip("no chromium here: install Debian's `chromium` package, or run `playwright install chromium`")
    return {**browser_type_launch_args, "args": ["--no-sandbox", "--disable-dev-shm-usage"], **({"executable_path": found} if found else {})}


@pytest.fixture(scope="session")
def shown_trace(tiny_target: Target) -> Trace:
    return run_growing(tiny_target, knobs={"nodes": 20, "depth": 4, "top_k": 5}, new=30, noise=1.0)


@pytest.fixture(scope="session")
def shown(shown_trace: Trace) -> dict[str, Any]:
    return view.whole(shown_trace)


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
