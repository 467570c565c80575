"""The player: token strip, candidate tree, round ribbon and why-panel of one run, drawn in the browser from a view."""

from __future__ import annotations

from typing import Any

import gradio as gr

from gradio.events import Dependency

class Player(gr.HTML):
    """Draws a view (`specviz.ui.view`) and lets people scrub, select and read it, without calls to the server."""

    def __init__(self, value: dict[str, Any] | None = None, *, compact: bool = False, **options: Any) -> None:
        super().__init__(value, html_template='<div class="specviz-player"></div>', js_on_load="// trigger('round_select') trigger('node_select')", compact=compact, **options)
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component