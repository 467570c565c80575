"""The player: token strip, candidate tree, round ribbon and why-panel of one run, drawn in the browser from a view."""

from __future__ import annotations

from typing import Any

import gradio as gr

from gradio.events import Dependency

class Player(gr.HTML):
    """Draws a view (`specviz.ui.view`) and lets people scrub, select and read it, without calls to the server.

    value   a view; {"seek": 3} alone only moves to round 3 (from 0); None shows `empty`
    compact one narrow column, for players side by side
    group   players of the same group scrub together, in the browser
    Events: `round_select` with {row, round} and `node_select` with {round, node} (a node's number, "bonus" or "cut0").
    Token text reaches the page as text nodes only: the template is constant, and values never enter it.
    """

    def __init__(
        self, value: dict[str, Any] | None = None, *, compact: bool = False, group: str = "", empty: str = "Nothing decoded yet.", **options: Any
    ) -> None:
        super().__init__(
            value, html_template='<div class="specviz-player"></div>', css_template=style(), js_on_load=script(), apply_default_css=False,
            compact=compact, group=group, empty=empty, words=VERDICTS, **options,
        )  # fmt: skip

    def api_info(self) -> dict[str, Any]:
        """Views are JSON objects."""
        return {"type": "object"}
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component