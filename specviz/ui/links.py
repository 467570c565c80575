"""Links: what leads from one page to another. Pages do not know each other; here they are wired once all of them are placed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from specviz.ui.controls import QUIET
from specviz.ui.pages.heads import HeadsPage
from specviz.ui.pages.live import LivePage


def link(tabs: gr.Tabs, places: Mapping[str, gr.Tab], pages: Mapping[str, Any]) -> None:
    """Wires a drafter to the report of its head, and a head to drafting with it; `places` and `pages` are tabs and pages by name."""
    heads, live = pages.get("heads"), pages.get("live")
    if not isinstance(heads, HeadsPage) or not isinstance(live, LivePage):
        return

    def report(drafter: str) -> dict[Any, Any]:
        """Opens the report of a drafter's head: the page draws itself when its tab is selected."""
        return {tabs: gr.Tabs(selected="heads"), heads.asked: drafter}

    def draft(head: str, shape: str | None, rule: str, temperature: float) -> dict[Any, Any]:
        """Opens the live page with a head's drafter, and the tree shape that suits it."""
        return {tabs: gr.Tabs(selected="live"), **live.method.new_drafter(head, shape, rule, temperature)}

    places["heads"].select(heads.show, heads.inputs, heads.outputs, **QUIET)
    heads.draft.click(draft, [heads.pick, *live.method.chosen[1:]], [tabs, *live.method.shown], **QUIET)
    for page in pages.values():
        if hasattr(page, "method"):
            page.method.report.click(report, page.method.picks["drafter"], [tabs, heads.asked], **QUIET)
