"""Short HTML texts around the player: what ran, how fast it was and why, what went wrong. Every inserted text is escaped."""

from __future__ import annotations

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
    return f'<p class="sv-message sv-{kind}" role="{role}">{escape(text)}</p>' if text else ""


def of_step(step: Step) -> str:
    """Returns the message of a step."""
    kinds = {"failed": "error", "done": "info", "stopped": "info"}
    return message(step.message, kinds.get(step.stage, "busy"))


def of_engine(state: State) -> str:
    """Returns the model's state for the header."""
    said = {"ready": "ready: ", "error": "The model could not be loaded. "}.get(state.kind, "")
    return f'<span class="sv-engine sv-{escape(state.kind)}" role="status"><i aria-hidden="true"></i>{escape(said + state.text)}</span>'


def of_run(trace: Trace, origin: str, row: int = 0) -> str:
    """Returns one line with everything needed to run it again: method, knobs, sampling, seed, model, device."""
    meta = trace.started(row).meta
    drafter, rule, sampling = (_mapping(meta, key) for key in ("drafter", "rule", "sampling"))
    shape = drafter.get("shape") if isinstance(drafter.get("shape"), dict) else {}
    rule_text = _named(rule) + ("" if rule.get("lossless", True) else " (LOSSY)")
    temperature, top_p, top_k = sampling.get("temperature", 0), sampling.get("top_p", 1), sampling.get("top_k", 0)
    drawn = f"temperature {temperature}" + (f", top-p {top_p}" if top_p != 1 else "") + (f", top-k {top_k}" if top_k else "")
    parts = [
        ("drafter", _named(drafter)), ("tree", _named(shape)), ("rule", rule_text), ("sampling", drawn), ("seed", str(meta.get("seed", "?"))),
        ("target", f"{_mapping(meta, 'target').get('name', '?')}, {meta.get('dtype', '?')}"), ("device", str(_mapping(meta, "device").get("name", "?"))),
    ]  # fmt: skip
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in parts if value)
    return f'<div class="sv-facts"><b>{escape(origin)}</b><dl>{cells}</dl><q>{escape(_short(trace.started(row).prompt))}</q></div>'


def _mapping(meta: Any, key: str) -> dict[str, Any]:
    value = meta.get(key)
    return value if isinstance(value, dict) else {}


def _named(record: Any) -> str:
    knobs = record.get("knobs") if isinstance(record.get("knobs"), dict) else {}
    values = ", ".join(f"{key} {value}" for key, value in knobs.items())
    return str(record.get("name", "")) + (f" ({values})" if values else "")


def _short(text: str, most: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def of_speed(trace: Trace, row: int = 0) -> str:
    """Returns how the run compares with its measured plain run, and where the time went; empty without one."""
    baseline, speedup, mine = baseline_of(trace, row), measured_speedup(trace, row), summarise(trace, row)
    if baseline is None or speedup is None or mine.tokens_per_second is None:
        return ""
    parts = decompose_against(mine, baseline.decoding_seconds / max(1, baseline.tokens - 1))
    head, tone = _headline(speedup)
    measured = f"{mine.tokens_per_second:.1f} against {baseline.tokens_per_second or 0:.1f} tokens per second, same prompt and seed, decoding only, after a warm-up."
    why = "" if parts is None else _why(parts, speedup, mine.draft_tokens / max(1, mine.rounds) + 1)
    return f'<div class="sv-speed sv-{tone}"><b>{escape(head)}</b> <span>{escape(measured)}</span> <span>{escape(why)}</span> <span>{escape(_same_text(trace, baseline, row))}</span></div>'


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
