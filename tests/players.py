"""What tests of the player share: blocks with one player, and how to find its parts in the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from playwright.sync_api import Locator, Page

from specviz.ui.widgets.player import Player

Open = Callable[..., Page]


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
