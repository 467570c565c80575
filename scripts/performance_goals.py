"""The goals that the performance page compares its measurements with, and which term forbids one that is missed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Results = Mapping[str, Record]
SLOWER = 0.97  # "never slower than plain by more than 3 %"


@dataclass(frozen=True)
class Goal:
    """One goal: what, how much, what was measured as text, whether it was met (None: not measured), and what stands in the way."""

    text: str
    aim: str
    shown: str = "-"
    met: bool | None = None
    why: str = ""


def goals(results: Results) -> list[Goal]:
    """Returns every goal; those whose step has no file are not measured."""
    makers: Sequence[tuple[str, Callable[[Record], list[Goal]], Sequence[Goal]]] = (
        ("peers", baseline_goals, [Goal("`autoregressive` against transformers' generate", "1.00x, better 1.15x")]),
        ("profile", forward_goals, [Goal("C(16) / C(1) and C(64) / C(1)", "at most 1.6 and 3")]),
        ("explain", speed_goals, [Goal("best drafter with a trained head, temperature 0", "1.2x, better 1.5x")]),
        ("lookup", lookup_goals, [Goal("`prompt_lookup`, summarising", "1.4x")]),
        ("sampled", sampled_goals, [Goal("slowest default at temperature 1", f"{SLOWER:g}x")]),
        ("overhead", overhead_goals, [Goal("recording", "at most 1.03x the wall time")]),
        ("streaming", streaming_goals, [Goal("decoding with a client that watches", "within 3 %")]),
        ("startup", startup_goals, [Goal("starts", "import 0.3 s, first screen 5 s, model ready 10 s")]),
    )
    return [goal for step, make, unmeasured in makers for goal in (make(results[step]["result"]) if step in results else unmeasured)]


def at_least(text: str, value: float | None, must: float, better: Sequence[float] = (), why: str = "") -> Goal:
    aim = f"{must:g}x" + "".join(f", better {more:g}x" for more in better)
    if value is None:
        return Goal(text, aim)
    reached = [more for more in (must, *better) if value >= more]
    return Goal(text, aim, f"{value:.2f}x", bool(reached), why if len(reached) <= len(better) else "")


def at_most(text: str, value: float | None, limit: float, unit: str = "", digits: int = 2) -> Goal:
    aim = f"at most {limit:g}{unit}"
    return Goal(text, aim) if value is None else Goal(text, aim, f"{value:.{digits}f}{unit}", value <= limit)


def median_of(spread: Record | None) -> float | None:
    return None if spread is None else spread["median"]


def baseline_goals(result: Record) -> list[Goal]:
    found = next((entry for entry in result["peers"] if entry["name"] == "autoregressive"), None)
    return [at_least("`autoregressive` against transformers' generate", median_of(found["speed_ratio"]) if found else None, 1.0, [1.15])]


def forward_goals(result: Record) -> list[Goal]:
    cost = result["forward_ms"]
    return [at_most(f"C({nodes}) / C(1)", cost[nodes] / cost["1"] if nodes in cost else None, limit) for nodes, limit in (("16", 1.6), ("64", 3.0))]


def speed_goals(result: Record) -> list[Goal]:
    learned = [entry for entry in result["drafters"] if entry["learned"] and entry["speedup"]]
    best = max(learned, key=lambda entry: entry["speedup"], default=None)
    text = f"`{best['name']}`, the best trained head, temperature 0" if best else "best drafter with a trained head, temperature 0"
    steps = (1.2, 1.5, 1.8)
    missed = next((goal for goal in steps if best and best["speedup"] < goal), steps[-1])
    found = [at_least(text, best and best["speedup"], steps[0], steps[1:], obstacle(best, missed) if best else "")]
    slowest = min((entry for entry in result["drafters"] if entry["speedup"]), key=lambda entry: entry["speedup"], default=None)
    return (
        found
        if slowest is None
        else [*found, at_least(f"`{slowest['name']}`, the slowest default, temperature 0", slowest["speedup"], 1.0, why=obstacle(slowest, 1.0))]
    )


def obstacle(entry: Record, goal: float) -> str:
    """Says which term of the formula forbids the goal: tau is the ceiling, else the term that costs most beyond verifying one node."""
    terms, tau = entry["explained"], entry["tau"]
    if terms is None or tau is None:
        return ""
    if tau < goal:
        return f"tau {tau:.2f} is below {goal:g}, whatever a round costs"
    allowed, costs = tau / goal, tau / terms["modelled"]
    spent = f"for {goal:g}x at tau {tau:.2f} a round may cost {allowed:.2f} C(1), it costs {costs:.2f}"
    return f"{spent}; most is lost to {terms['dearest']}, without which it would be {terms['without_dearest']:.2f}x"


def lookup_goals(result: Record) -> list[Goal]:
    entry = result["drafters"][0]
    return [at_least("`prompt_lookup`, summarising", entry["speedup"], 1.4, why=obstacle(entry, 1.4))]


def sampled_goals(result: Record) -> list[Goal]:
    entry = min((one for one in result["drafters"] if one["speedup"]), key=lambda one: one["speedup"], default=None)
    if entry is None:
        return [Goal("slowest default at temperature 1", f"{SLOWER:g}x")]
    return [at_least(f"`{entry['name']}`, the slowest default at temperature 1", entry["speedup"], SLOWER, why=obstacle(entry, SLOWER))]


def overhead_goals(result: Record) -> list[Goal]:
    return [at_most(f"recording `{entry['name']}`, wall time over not recording", entry["ratio"], result["aim"], "x", 3) for entry in result["trace_overhead"]]


def streaming_goals(result: Record) -> list[Goal]:
    return [at_most("decoding time with a client that watches", median_of(result["decoding_ratio"]["client"]), 1.03, "x", 3)]


def startup_goals(result: Record) -> list[Goal]:
    limits = {
        "import_specviz": ("`import specviz`", 0.3),
        "first_screen": ("`make app` until the page answers", 5.0),
        "model_ready": ("`make app` until the model is ready", 10.0),
    }
    return [at_most(text, median_of(result[key]), limit, " s", 3 if limit < 1 else 2) for key, (text, limit) in limits.items()]
