"""Run and Stop: how a page asks for a run, waits for its turn, ends it early, and gets its buttons back whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.ui import notes
from specviz.ui.app import MODEL_WORK, App
from specviz.ui.controls import QUIET


@dataclass(frozen=True)
class Flow:
    """What happens after a click on Run.

    decode  a generator that streams to `stream`, which is kept short: Gradio builds every output anew that an update leaves out
    finish  draws everything else once, from `kept` (the session's state), on `screen`
    """

    decode: Callable[..., Any]
    inputs: Collection[Any]
    stream: Collection[Any]
    finish: Callable[..., Any]
    kept: gr.State
    screen: Collection[Any]


class RunButtons:
    """Run, Stop and the line of text below them. Stopping sets a flag that the run reads once per round, so that it ends cleanly."""

    def __init__(self, app: App, prefix: str, label: str) -> None:
        self.app, self.prefix = app, prefix
        with gr.Row(elem_classes="app-run"):
            self.run = gr.Button(label, variant="primary", elem_id=f"{prefix}-run")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id=f"{prefix}-stop")
        self.message = gr.HTML("", elem_id=f"{prefix}-message")
        self.beat = gr.Timer(1.0, active=False)

    def wire(self, prompt: gr.Textbox, flow: Flow) -> None:
        """Runs on a click or on Shift+Enter; all pages' runs share one place, so that the model does one thing at a time."""
        parts = [self.run, self.stop, self.beat]
        armed = gr.on([self.run.click, prompt.submit], self.arm, None, [*parts, self.message], **QUIET)
        decoded = armed.then(
            flow.decode, set(flow.inputs), [self.message, *flow.stream], show_progress="hidden", concurrency_id=MODEL_WORK, concurrency_limit=1,
            api_visibility="private",
        )  # fmt: skip
        decoded.failure(self.broke, None, [*parts, self.message], **QUIET)
        decoded.then(self.rest, None, parts, **QUIET)
        decoded.then(flow.finish, flow.kept, list(flow.screen), **QUIET)
        self.stop.click(self.ask_stop, None, self.stop, **QUIET)

    def session(self, request: gr.Request) -> str:
        return f"{self.prefix}/{request.session_hash}"

    def stopped(self, request: gr.Request) -> Callable[[], bool]:
        """Returns what a run asks once per round."""
        session = self.session(request)
        return lambda: self.app.stops.asked(session)

    def arm(self, request: gr.Request) -> list[Any]:
        """A run was asked for; it may have to wait for its turn."""
        self.app.stops.arm(self.session(request))
        stop = gr.update(value="Stop", interactive=True, visible=True)
        return [gr.update(visible=False), stop, gr.Timer(active=True), notes.message("Waiting for a turn.", "busy")]

    def rest(self) -> list[Any]:
        """No run is going on."""
        return [gr.update(visible=True), gr.update(visible=False), gr.Timer(active=False)]

    def broke(self) -> list[Any]:
        """The run did not end by itself: the queue was full, or something failed that nobody foresaw."""
        return [
            *self.rest(),
            notes.message("The run did not take place or broke off: too many runs may be waiting. Try again; the server's log has the details.", "error"),
        ]

    def ask_stop(self, request: gr.Request) -> dict[str, Any]:
        """The run, going on or still waiting, should end. Only the button changes: the message belongs to the run, which may end first."""
        self.app.stops.stop(self.session(request))
        return gr.update(value="Stopping after this round", interactive=False)
