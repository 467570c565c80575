"""Short HTML texts around the player: what ran, how fast it was and why, what went wrong. Every inserted text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from specviz.analysis.compare import first_difference
from specviz.analysis.cost import Decomposition, decompose_against
from specviz.analysis.summary import Baseline, baseline_of, measured_speedup, summarise
from specviz.trace import Trace
from specviz.ui.engine import State
from specviz.ui.runs import Step

EVEN = 0.02  # a speed-up this close to 1 is called even


def message(text: str, kind: str = "info") -> str:
    """Returns a line that screen readers announce; kind is info, busy or error."""
    role = "alert" if kind == "error" else "status"
    return f'<p class="app-message app-{kind}" role="{role}">{escape(text)}</p>' if text else ""


def of_step(step: Step) -> str:
    """Returns the message of a step."""
    kinds = {"failed": "error", "done": "info", "stopped": "info"}
    return message(step.message, kinds.get(step.stage, "busy"))


def of_engine(state: State) -> str:
    """Returns the model's state for the header."""
    said = {"ready": "ready: ", "error": "The model could not be loaded. "}.get(state.kind, "")
    return f'<span class="app-engine app-{escape(state.kind)}" role="status"><i aria-hidden="true"></i>{escape(said + state.text)}</span>'


def origin(text: str) -> str:
    """Returns the line that says whose run is on screen."""
    return f'<p class="app-origin">{escape(text)}</p>'


def of_origin(text: str, trace: Trace, row: int = 0) -> str:
    """Returns where the run on screen comes from, and what its drafter warned of (heads trained against another target)."""
    warnings = _mapping(trace.started(row).meta, "drafter").get("warnings") or ()
    said = "".join(message(f"This drafter was trained against another target, so it accepts less. {warning}", "warn") for warning in warnings)
    budget = _mapping(_mapping(trace.started(row).meta, "drafter"), "budget")
    return f"{origin(text)}{message(_of_budget(budget)) if budget else ''}{said}"


def _of_budget(record: Mapping[str, Any]) -> str:
    """Returns what `auto` came to, for a person who does not know the option."""
    nodes, speedup = record.get("nodes"), record.get("speedup")
    chosen = "Plain decoding was chosen" if nodes == 1 else f"{nodes} nodes a round were chosen"
    if nodes != 1 and isinstance(speedup, (int, float)):
        return f"{chosen} for the machine of this run; modelled: {speedup:.2f} times as fast as plain decoding."
    why = str(record.get("why") or "").removesuffix(".")
    return f"{chosen}: {why}." if why else f"{chosen}."


def method(trace: Trace, row: int = 0) -> str:
    """Returns drafter and tree in a few words."""
    drafter = _mapping(trace.started(row).meta, "drafter")
    shape = drafter.get("shape")
    return str(drafter.get("name", "?")) + (f" on {shape.get('name')}" if isinstance(shape, dict) else "")


def column(letter: str, text: str) -> str:
    """Returns the heading of a compare column."""
    return f'<h2 class="app-column"><b>{escape(letter)}</b> {escape(text)}</h2>'


def _mapping(meta: Any, key: str) -> dict[str, Any]:
    value = meta.get(key)
    return value if isinstance(value, dict) else {}


def of_speed(trace: Trace, row: int = 0) -> str:
    """Returns how the run compares with its measured plain run, and where the time went; empty without one."""
    baseline, speedup, mine = baseline_of(trace, row), measured_speedup(trace, row), summarise(trace, row)
    if baseline is None or speedup is None or mine.tokens_per_second is None:
        return ""
    parts = decompose_against(mine, baseline.decoding_seconds / max(1, baseline.tokens - 1))
    head, tone = _headline(speedup)
    measured = (
        f"{mine.tokens_per_second:.1f} against {baseline.tokens_per_second or 0:.1f} tokens per second, same prompt and seed, decoding only, after a warm-up."
    )
    why = "" if parts is None else _why(parts, speedup, mine.draft_tokens / max(1, mine.rounds) + 1)
    return f'<div class="app-speed app-{tone}"><b>{escape(head)}</b> <span>{escape(measured)}</span> <span>{escape(why)}</span> <span>{escape(_same_text(trace, baseline, row))}</span></div>'


def _headline(speedup: float) -> tuple[str, str]:
    if abs(speedup - 1.0) <= EVEN:
        return f"As fast as plain decoding ({speedup:.2f}×).", "even"
    return (f"{speedup:.2f}× as fast as plain decoding.", "faster") if speedup > 1.0 else (f"Slower than plain decoding: {speedup:.2f}×.", "slower")


def _why(parts: Decomposition, speedup: float, nodes: float) -> str:
    verify, draft = parts.verify / parts.plain, parts.draft / parts.plain
    rest = parts.round_cost - verify - draft
    text = f"A round gives {parts.tau:.2f} tokens and costs {parts.round_cost:.2f} plain steps: verifying {nodes:.0f} nodes {verify:.2f}, drafting {draft:.2f}, the rest {rest:.2f}."
    if speedup >= 1.0 - EVEN:
        return text
    if parts.tau < 1.1:
        return f"{text} The draft was hardly ever right for this text."
    if draft > verify - 1.0:
        return f"{text} Drafting costs most: fewer draft steps (depth) would help."
    return f"{text} Verifying costs most: on this device more nodes take longer, so a smaller tree would help."


def _same_text(trace: Trace, baseline: Baseline, row: int) -> str:
    if not baseline.token_ids:
        return ""
    found = first_difference(baseline.token_ids, trace.emitted(row))
    if found is None:
        return "The text is the same, token for token."
    rule = _mapping(trace.started(row).meta, "rule")
    if not rule.get("lossless", True):
        return f"The text differs from new token {found.position + 1} on: this rule is lossy."
    if _mapping(trace.started(row).meta, "sampling").get("temperature", 0):
        return f"The text differs from new token {found.position + 1} on: sampled children keep the distribution, not each token."
    return f"The text differs from new token {found.position + 1} on: look for a near-tie of the two tokens there."
