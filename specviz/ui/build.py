"""build() makes the whole app, serve() launches it. Pages are discovered; the model loads in the background, after the first screen."""

from __future__ import annotations

import threading
from typing import Any

import gradio as gr

from specviz.registry import discover
from specviz.settings import Settings
from specviz.ui import api, notes, pages, zero
from specviz.ui.app import App
from specviz.ui.controls import QUIET
from specviz.ui.engine import Engine
from specviz.ui.links import link
from specviz.ui.theme import HEAD, STYLE, theme

ORDER = ("live", "compare")  # pages named here come first, others follow in file-name order
LOAD_AFTER = 1.5  # seconds after launch, or with the first visitor: loading at once would slow down the first screen
POLL = 0.7  # seconds between two looks at the loading model
HEADER = '<div class="app-brand"><h1>specviz</h1><p>Real speculative decoding, one round at a time.</p></div>'


def build(settings: Settings | None = None, *, app: App | None = None) -> gr.Blocks:
    """Returns the app, not yet launched. Nothing heavy is loaded here, except on ZeroGPU, which wants models at import.

    `app` replaces engine, traces and settings at once (tests).
    """
    settings = settings or (app.settings if app else Settings.from_env())
    app = app or App(settings, Engine(settings))
    if zero.enabled():
        app.engine.load_now()
    with gr.Blocks(title="specviz", analytics_enabled=False, delete_cache=(3600, 86400), fill_width=True) as demo:
        api.place(app)  # first: its name belongs to it, not to a handler of a page
        _header(demo, app)
        with gr.Tabs(elem_id="pages", elem_classes="app-tabs") as tabs:
            places, made = {}, {}
            for name, page in _pages().items():
                with gr.Tab(name.replace("_", " ").capitalize(), id=name, elem_id=f"page-{name}") as places[name]:
                    made[name] = page(app)
        link(tabs, places, made)
    demo.queue(max_size=settings.queue, default_concurrency_limit=8)
    demo.specviz = app
    return demo


def _pages() -> dict[str, Any]:
    found = discover(pages)
    return {name: found[name] for name in sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))}


def _header(demo: gr.Blocks, app: App) -> None:
    """Places name and model state; the state is looked at until nothing more will change."""
    with gr.Row(elem_classes="app-header"):
        gr.HTML(HEADER)
        state = gr.HTML(notes.of_engine(app.engine.state), elem_id="engine")
        retry = gr.Button("Try again", size="sm", visible=app.engine.state.kind == "error", min_width=0, elem_id="retry", elem_classes="app-quiet")
    timer = gr.Timer(POLL, active=not app.engine.state.settled)

    def look() -> list[Any]:
        app.engine.start_unless_failed()
        now = app.engine.state
        return [notes.of_engine(now), gr.update(visible=now.kind == "error"), gr.Timer(active=not now.settled)]

    def again() -> list[Any]:
        app.engine.start()
        return look()

    parts = [state, retry, timer]
    timer.tick(look, None, parts, **QUIET)
    retry.click(again, None, parts, **QUIET)
    demo.load(look, None, parts, **QUIET)


def serve(demo: gr.Blocks, **options: Any) -> Any:
    """Launches the app, prints its address, then starts loading the model; returns what `launch` returns."""
    app: App = demo.specviz
    launched = demo.launch(
        **{
            "server_name": app.settings.host, "server_port": app.settings.port or None, "prevent_thread_lock": True, "quiet": True, "share": False,
            "ssr_mode": False, "theme": theme(), "css_paths": [STYLE], "head": HEAD, "footer_links": ["api"], "run_history": False, "enable_monitoring": False,
            "max_file_size": f"{app.settings.upload_mb}mb",
            "_frontend": False,  # skips a self-test that gives up after 3 seconds, which a busy machine may need for its first page
            **options,
        }
    )  # fmt: skip
    later = threading.Timer(LOAD_AFTER, app.engine.start_unless_failed)
    later.daemon = True
    later.start()
    return launched
