"""build() makes the whole app, serve() launches it. Pages are discovered; the model loads in the background, after the first screen."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz.registry import discover, summary
from specviz.settings import Settings
from specviz.ui import notes, pages
from specviz.ui.app import App
from specviz.ui.controls import QUIET
from specviz.ui.engine import Engine, on_zero_gpu
from specviz.ui.theme import STYLE, theme

ORDER = ("live", "compare")  # pages named here come first, others follow in file-name order
POLL = 0.7  # seconds between two looks at the loading model
HEADER = '<div class="sv-brand"><h1>specviz</h1><p>Real speculative decoding, one round at a time.</p></div>'


def build(settings: Settings | None = None, *, app: App | None = None) -> gr.Blocks:
    """Returns the app, not yet launched. Nothing heavy is loaded here, except on ZeroGPU, which wants models at import.

    `app` replaces engine, traces and settings at once (tests).
    """
    settings = settings or (app.settings if app else Settings.from_env())
    app = app or App(settings, Engine(settings))
    if on_zero_gpu():
        app.engine.load_now()
    with gr.Blocks(title="specviz", analytics_enabled=False, delete_cache=(3600, 86400)) as demo:
        _header(app)
        with gr.Tabs(elem_id="pages", elem_classes="sv-tabs"):
            for name, page in _pages().items():
                with gr.Tab(name.replace("_", " ").capitalize(), id=name, elem_id=f"page-{name}"):
                    page(app)
    demo.queue(max_size=settings.queue, default_concurrency_limit=8)
    demo.specviz = app
    return demo


def _pages() -> dict[str, Any]:
    found = discover(pages)
    return {name: found[name] for name in sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))}


def _header(app: App) -> None:
    """Places name and model state; the state is looked at until nothing more will change."""
    with gr.Row(elem_classes="sv-header"):
        gr.HTML(HEADER)
        state = gr.HTML(notes.of_engine(app.engine.state), elem_id="engine")
        retry = gr.Button("Try again", size="sm", visible=app.engine.state.kind == "error", min_width=0, elem_id="retry", elem_classes="sv-quiet")
    timer = gr.Timer(POLL, active=not app.engine.state.settled)

    def look() -> list[Any]:
        now = app.engine.state
        return [notes.of_engine(now), gr.update(visible=now.kind == "error"), gr.Timer(active=not now.settled)]

    def load() -> list[Any]:
        app.engine.start()
        return look()

    parts = [state, retry, timer]
    timer.tick(look, None, parts, **QUIET)
    retry.click(load, None, parts, **QUIET)
    gr.on([gr.context.Context.root_block.load], look, None, parts, **QUIET)


def serve(demo: gr.Blocks, **options: Any) -> Any:
    """Launches the app, prints its address, then starts loading the model; returns what `launch` returns."""
    app: App = demo.specviz
    launched = demo.launch(
        **{
            "server_name": app.settings.host, "server_port": app.settings.port or None, "prevent_thread_lock": True, "quiet": True,
            "ssr_mode": False, "theme": theme(), "css_paths": [STYLE], "footer_links": ["api"], "run_history": False, "enable_monitoring": False,
            "max_file_size": f"{app.settings.upload_mb}mb", "show_error": True, "share": False, **options,
        }
    )  # fmt: skip
    app.engine.start()
    return launched
