"""Apps for tests: the whole page on a tiny target, and what a handler needs to be called as a function."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from specviz.settings import Settings
from specviz.target import Target
from specviz.ui.app import App
from specviz.ui.build import build
from specviz.ui.engine import Engine
from specviz.ui.pages.compare import ComparePage
from specviz.ui.pages.live import LivePage

SETTINGS = Settings(port=0, target="tiny-llama", max_prompt_tokens=200, max_new_tokens=64, upload_mb=1)
LOOPING = "the cat sat on the mat and the cat sat on the mat and the cat sat"


def make_app(target: Target, traces: Path | None = None, settings: Settings = SETTINGS) -> App:
    """Returns an app whose engine is ready with `target`; `traces` replaces the recorded runs."""
    engine = Engine(settings, load=lambda: target)
    engine.load_now()
    return App(settings, engine) if traces is None else App(settings, engine, traces)


def live_page(app: App) -> LivePage:
    with gr.Blocks():
        page = LivePage(app)
        page.place()
        page.wire()
    return page


def compare_page(app: App) -> ComparePage:
    with gr.Blocks():
        page = ComparePage(app)
        page.place()
        page.wire()
    return page


def request(session: str = "one") -> Any:
    return SimpleNamespace(session_hash=session)


def live_values(page: LivePage, **changed: Any) -> dict[Any, Any]:
    """Returns what the live page sends on Run; `changed` by part: prompt, drafter, shape, rule, temperature, seed, length, plain."""
    values = {part: getattr(part, "value", None) for part in {*page.prompt.inputs, *page.method.inputs, page.plain}}
    parts = {
        "prompt": page.prompt.text,
        "length": page.prompt.length,
        "seed": page.prompt.seed,
        "temperature": page.method.temperature,
        "plain": page.plain,
        **page.method.picks,
    }
    values |= {page.prompt.text: LOOPING, page.prompt.length: 12}
    return values | {parts[name]: value for name, value in changed.items()}


def served(app: App) -> gr.Blocks:
    return build(app=app)
