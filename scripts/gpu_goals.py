"""Compares what the other steps of gpu_check.sh measured with the goals for a GPU; prints one line a goal and writes goals.json.

    python scripts/gpu_goals.py FOLDER

A step without a file is "not measured"; a number that does not answer the question (the step was broken off, or the graphs that it is
about fell back) is "not decided". A dry run on a CPU says so: its numbers show that the steps work, and nothing else.
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
    """One goal: what, the bound, what was measured (None: not measured), whether it was met (None: not decided), and what explains it."""

    text: str
    bound: str
    value: float | None
    met: bool | None
    told: str = ""


def main() -> int:
    """Reads the folder, prints the goals, writes goals.json."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/gpu")
    files = read(folder)
    found = [make(files) for make in (same_tokens, against_eager, against_compiled, best_drafter, wide_verify, wide_verify_bf16, recording)]
    dry = bool(files["gpu_check"]["dry_run"]) if "gpu_check" in files else not on_a_gpu(files)
    label = "DRY RUN, no measure of a GPU: " if dry else ""
    if dry:  # equal tokens are shown on a CPU too; a speed is not
        found[1:] = [replace(goal, met=None) for goal in found[1:]]
    for goal in found:
        word = "met" if goal.met else "MISSED" if goal.met is False else "not measured" if goal.value is None else "not decided"
        shown = "" if goal.value is None else f" {goal.value:.3g}"
        print(f"{label}{word:12} {goal.text}:{shown} (goal {goal.bound}){'; ' + goal.told if goal.told else ''}")
    (folder / "goals.json").write_text(json.dumps({"dry_run": dry, "goals": [asdict(goal) for goal in found]}, indent=1) + "\n")
    return 0


def read(folder: Path) -> dict[str, Record]:
    """Returns the steps' results by name; one that was broken off while it was written is said and left out."""
    files = {}
    for path in sorted(folder.glob("*.json")):
        try:
            files[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as problem:
            print(f"{path.name} is damaged ({problem}), so its goals are not measured. Run its step again.")
    files.pop("goals", None)
    return files


def on_a_gpu(files: Files) -> bool:
    """True when a step says that it ran on CUDA: the comparison of tokens may be missing, and the speeds count all the same."""
    metas = ((files.get(name, {}).get("meta") or {}).get("device") or {} for name in ("bench", "overhead"))
    machines = (files.get(name, {}).get("machine") or {} for name in ("profile", "profile_bf16"))
    settings = ({"type": files.get(name, {}).get("setting", {}).get("device")} for name in ("peers", "peers_static"))
    return any(str(place.get("type") or "").startswith("cuda") for place in (*metas, *machines, *settings))


def goal(text: str, value: float | None, bound: float, *, least: bool, told: str = "") -> Goal:
    """Returns a goal with a least (or most) value."""
    met = None if value is None else value >= bound if least else value <= bound
    return Goal(text, f"at {'least' if least else 'most'} {bound:g}", value, met, told)


def same_tokens(files: Files) -> Goal:
    """CPU, device, device without graphs and plain decoding write the same text, and graphs draft what is drafted without them."""
    text, record = "runs whose text or number of rounds differs beyond rounding", files.get("gpu_check")
    if record is None:
        return goal(text, None, 0, least=False)
    checks = record["checks"]
    ties = sum(not check["equal"] and not check["failed"] for check in checks)
    moved = sum(bool(check["rounds_apart"]) and not check["failed"] for check in checks)
    told = [f"{len(checks)} runs, {ties} near-ties, {moved} with a few rounds more or less, graphs: {record['graphs']}", *record["notes"]]
    told += [f"{check['drafter']} {check['prompt']} T={check['temperature']:g}: {check['why']}" for check in checks if check["failed"]]
    found = goal(text, float(record["failed"]), 0, least=False, told="; ".join([*told, *(undecided := not_compared(record))]))
    return replace(found, met=None) if found.met and undecided else found


def not_compared(record: Record) -> list[str]:
    """Returns in words what the equal runs of gpu_check.json do not show: graphs that fell back, or checks that were not made."""
    wanted = "static" if record["dry_run"] else "cuda"
    back = sorted({check["drafter"] for check in record["checks"] if check["draft_graphs"] not in (None, wanted)})
    told = [] if record["graphs"] == wanted else [f"verification fell back from graphs {wanted!r} to {record['graphs']!r}"]
    told += [f"drafts were not replayed by {', '.join(back)}"] if back else []
    return told + ([] if record["complete"] else ["broken off before every check was made"])


def against_eager(files: Files) -> Goal:
    return _against(files, "peers", "transformers_generate", "autoregressive over transformers' generate", 8.0)


def against_compiled(files: Files) -> Goal:
    return _against(files, "peers_static", "transformers_static_cache", "autoregressive over transformers' generate with a compiled static cache", 1.0)


def _against(files: Files, step: str, peer: str, text: str, bound: float) -> Goal:
    record = files.get(step, {})
    rows = {row["name"]: row for row in record.get("peers", ())}
    ours, theirs = (_median(rows.get(name, {}).get("tokens_per_second")) for name in ("autoregressive", peer))
    setting, reason = record.get("setting", {}), str(rows.get(peer, {}).get("reason") or "")
    if ours is None or not theirs:
        return goal(text, None, bound, least=True, told=reason)
    told = [f"{ours:.0f} against {theirs:.0f} tokens/s, the prompt's forward included", f"graphs: {setting.get('graphs')}", *setting.get("notes", ())]
    return goal(text, ours / theirs, bound, least=True, told="; ".join([*told, *([reason] if reason else [])]))


def best_drafter(files: Files) -> Goal:
    """The share of the fastest drafter's tau that becomes speed: what is lost goes into drafting, wider forwards, rule and commit.

    Not the best share of all: that is the one of a drafter that hardly drafts.
    """
    record = files.get("bench", {})
    rows = [row for row in record.get("drafters", ()) if row["speedup"] and row["tau"] and row["tau"] > 1.0]
    fastest = max(rows, key=lambda row: row["speedup"], default=None)
    text = "fastest drafter's speed-up / tau, against autoregressive with the same graphs"
    if fastest is None:
        return goal(text, None, 0.7, least=True)
    told = [f"{row['name']} {row['speedup']:.2f} / {row['tau']:.2f}" for row in sorted(rows, key=lambda row: -row["speedup"])[:4]]
    device = (record.get("meta") or {}).get("device") or {}
    return goal(text, fastest["speedup"] / fastest["tau"], 0.7, least=True, told=f"{', '.join(told)}; graphs: {device.get('graphs')}")


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
