"""The app's endpoint for programs: one run as JSON, with the same checks as the page."""

from __future__ import annotations

from typing import Any

import gradio as gr

from specviz.analysis.summary import account
from specviz.build import parse_spec
from specviz.errors import SpecvizError
from specviz.trace import Trace
from specviz.ui import choices
from specviz.ui.app import MODEL_WORK, App
from specviz.ui.engine import Ask

WAIT = 60.0  # seconds that a call waits for a model that is still loading


def place(app: App) -> None:
    """Adds the endpoint /decode to the app that is being built."""

    def decode(
        prompt: str, spec: str = choices.FALLBACK, rule: str = "", temperature: float = 0.0, top_p: float = 1.0, top_k: int = 0,
        seed: int = 0, max_new_tokens: int = 64,
    ) -> dict[str, Any]:  # fmt: skip
        """Decodes one prompt and returns text, token ids, numbers and what ran. `spec` is drafter@shape:knob=value; an empty rule picks a lossless one."""
        try:
            sampling = choices.make_sampling(temperature, top_p, top_k, seed)
            name = rule or ("greedy" if sampling.greedy else choices.ANY_TEMPERATURE)
            ask = Ask(str(prompt), parse_spec(str(spec)), str(name), {}, sampling, choices.number("max_new_tokens", max_new_tokens, int))
            app.engine.wait(WAIT)
            return account(Trace(list(app.engine.events(ask))))
        except SpecvizError as problem:
            raise gr.Error(str(problem), print_exception=False) from None

    gr.api(decode, api_name="decode", concurrency_id=MODEL_WORK, concurrency_limit=1)
