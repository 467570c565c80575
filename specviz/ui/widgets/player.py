"""The player: token strip, candidate tree, round ribbon and why-panel of one run, drawn in the browser from a view."""

from __future__ import annotations

import json
from abc import ABCMeta
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.component_meta import ComponentMeta, updateable

from specviz.analysis.case import VERDICTS

SCRIPTS = ("dom", "terms", "store", "strip", "ribbon", "items", "tree", "legend", "panel", "player", "keys")  # one scope, in this order
STYLES = ("tree", "player")  # what adapts to the width comes last


@cache
def read(names: tuple[str, ...], ending: str) -> str:
    """Returns the files of this folder put together: the script that runs when the component is mounted, the style that Gradio scopes to it."""
    here = Path(__file__).parent
    return "\n".join((here / f"{name}.{ending}").read_text("utf-8") for name in names)


def as_text(view: dict[str, Any]) -> str:
    """Returns a view as the text that travels. A first value given so spares Gradio a deep copy of the whole view for every visitor."""
    return json.dumps(view, separators=(",", ":"), allow_nan=False)


class NoStub(ComponentMeta):
    """Gradio writes a .pyi beside every component's source, which type checkers would then read instead of it: this leaves that out."""

    def __new__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> NoStub:
        attributes["__init__"] = updateable(attributes["__init__"])  # what ComponentMeta does beside the stub: an update may build the component anew
        return ABCMeta.__new__(cls, name, bases, attributes)


class Player(gr.HTML, metaclass=NoStub):
    """Draws a view (`specviz.ui.view`) and lets people scrub, select and read it, without calls to the server.

    value   a view; {"seek": 3} alone only moves to round 3 (from 0); None shows `empty`
    compact one narrow column, for players side by side
    group   players of the same group scrub together, in the browser
    Events: `round_select` with {row, round} and `node_select` with {round, node} (a node's number, "bonus" or "cut0").
    Token text reaches the page as text nodes only: the template is constant, and values never enter it.
    """

    def __init__(
        self, value: dict[str, Any] | str | None = None, *, compact: bool = False, group: str = "", empty: str = "Nothing decoded yet.", **options: Any
    ) -> None:
        super().__init__(
            value, html_template='<div class="specviz-player"></div>', css_template=read(STYLES, "css"), js_on_load=read(SCRIPTS, "js"), apply_default_css=False,
            compact=compact, group=group, empty=empty, words=VERDICTS, **options,
        )  # fmt: skip

    def api_info(self) -> dict[str, Any]:
        """Views are JSON objects."""
        return {"type": "object"}

    def postprocess(self, value: dict[str, Any] | str | None) -> str | None:
        """Sends a view as JSON text: Gradio streams values as differences, and its differences of nested lists that shrink are wrong."""
        return value if value is None or isinstance(value, str) else as_text(value)
