"""Compares what the other steps of gpu_check.sh measured with the goals for a GPU; prints one line a goal and writes goals.json.

    python scripts/gpu_goals.py FOLDER

A step without a file is "not measured". A dry run on a CPU says so: its numbers show that the steps work, and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
Files = Mapping[str, Record]


@dataclass(frozen=True)
class Goal:
    """One goal: what, the bound, what was measured (None: not measured), whether it was met, and numbers that explain it."""

    text: str
    bound: str
    value: float | None
    met: bool | None
    told: str = ""


def main() -> int:
    """Reads the folder, prints the goals, writes goals.json."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/gpu")
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")) if path.stem != "goals"}
    found = [make(files) for make in (same_tokens, against_eager, against_compiled, best_drafter, wide_verify, wide_verify_bf16, recording)]
    dry = bool(files.get("gpu_check", {}).get("dry_run", True))
    label = "DRY RUN, no measure of a GPU: " if dry else ""
    if dry:  # equal tokens are shown on a CPU too; a speed is not
        found[1:] = [replace(goal, met=None) for goal in found[1:]]
    for goal in found:
        word = "not measured" if goal.met is None else "met" if goal.met else "MISSED"
        shown = "" if goal.value is None else f" {goal.value:.3g}"
        print(f"{label}{word:12} {goal.text}:{shown} (goal {goal.bound}){'; ' + goal.told if goal.told else ''}")
    (folder / "goals.json").write_text(json.dumps({"dry_run": dry, "goals": [asdict(goal) for goal in found]}, indent=1) + "\n")
    return 0


def goal(text: str, value: float | None, bound: float, *, least: bool, told: str = "") -> Goal:
    """Returns a goal with a least (or most) value."""
    met = None if value is None else value >= bound if least else value <= bound
    return Goal(text, f"at {'least' if least else 'most'} {bound:g}", value, met, told)


def same_tokens(files: Files) -> Goal:
    """CPU, device, device without graphs and plain decoding write the same text."""
    record = files.get("gpu_check")
    if record is None:
        return goal("runs whose text differs beyond rounding", None, 0, least=False)
    ties = sum(not check["equal"] and not check["failed"] for check in record["checks"])
    told = f"{len(record['checks'])} runs, {ties} near-ties, graphs: {record['graphs']}" + "".join(f"; {note}" for note in record["notes"])
    return goal("runs whose text differs beyond rounding", float(record["failed"]), 0, least=False, told=told)


def against_eager(files: Files) -> Goal:
    return _against(files, "transformers_generate", "autoregressive over transformers' generate", 8.0)


def against_compiled(files: Files) -> Goal:
    return _against(files, "transformers_static_cache", "autoregressive over transformers' generate with a compiled static cache", 1.0)


def _against(files: Files, peer: str, text: str, bound: float) -> Goal:
    rows = {row["name"]: row for row in files.get("peers", {}).get("peers", ())}
    ours, theirs = (_median(rows.get(name, {}).get("tokens_per_second")) for name in ("autoregressive", peer))
    if ours is None or not theirs:
        return goal(text, None, bound, least=True, told=str(rows.get(peer, {}).get("reason") or ""))
    return goal(text, ours / theirs, bound, least=True, told=f"{ours:.0f} against {theirs:.0f} tokens/s, the prompt's forward included")


def best_drafter(files: Files) -> Goal:
    """The share of tau that becomes speed: what is lost goes into drafting, wider forwards, rule and commit."""
    rows = [row for row in files.get("bench", {}).get("drafters", ()) if row["speedup"] and row["tau"] and row["tau"] > 1.0]
    best = max(rows, key=lambda row: row["speedup"] / row["tau"], default=None)
    fastest = max(rows, key=lambda row: row["speedup"], default=None)
    text = "best drafter's speed-up / tau, against autoregressive with the same graphs"
    if best is None or fastest is None:
        return goal(text, None, 0.7, least=True)
    told = f"{best['name']}: tau {best['tau']:.2f}, speed-up {best['speedup']:.2f}; fastest {fastest['name']}: tau {fastest['tau']:.2f}, speed-up {fastest['speedup']:.2f}"
    return goal(text, best["speedup"] / best["tau"], 0.7, least=True, told=told)


def wide_verify(files: Files) -> Goal:
    return _wide(files, "profile", "verify of 64 nodes over 1 node")


def wide_verify_bf16(files: Files) -> Goal:
    return _wide(files, "profile_bf16", "the same in bfloat16")


def _wide(files: Files, name: str, text: str) -> Goal:
    cost = files.get(name, {}).get("forward_ms", {})
    if not cost.get("1") or not cost.get("64"):
        return goal(text, None, 1.15, least=False)
    return goal(text, cost["64"] / cost["1"], 1.15, least=False, told=", ".join(f"C({nodes}) {ms:.2f} ms" for nodes, ms in cost.items()))


def recording(files: Files) -> Goal:
    rows = files.get("overhead", {}).get("trace_overhead", ())
    worst = max(rows, key=lambda row: row["ratio"], default=None)
    return goal("wall time with recording over without", worst and worst["ratio"], 1.03, least=False, told=f"{worst['name']}" if worst else "")


def _median(spread: Record | None) -> float | None:
    return None if not spread else spread["median"]


if __name__ == "__main__":
    raise SystemExit(main())
