"""The text of docs/performance.md, made from the files that scripts/bench_report.py wrote and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from performance_goals import Goal, goals

from specviz.analysis.profile import Spread

Record = Mapping[str, Any]
Results = Mapping[str, Record]
ENTRY = ("name", "prompts", "tau", "tokens_per_second", "baseline_tokens_per_second", "speedup", "speedup_median", "equal_to_baseline", "cost", "explained")
META = ("target", "rule", "sampling", "device", "dtype", "prompts", "max_new_tokens", "raw")
HEAD = """# Performance

Written by `make bench-report` from the files in [docs/performance/](performance/); nothing here was typed by hand. Every table was
measured in one run in which everything that is compared took turns. Medians, with the range of the middle half of the
measurements in brackets. Another machine gives other numbers: run it on yours.
"""


def thin(step: str, result: Record) -> dict[str, Any]:
    """Returns what the page and a reader of the files need of a step's output: spreads instead of every single run."""
    if step in ("explain", "sampled", "lookup"):
        entries = [{**{key: entry.get(key) for key in ENTRY}, "learned": is_learned(entry), "speedups": speedups(entry)} for entry in result["drafters"]]
        told = {key: value for key, value in result.items() if key not in ("drafters", "baseline", "meta")}
        return {**told, "drafters": entries, "meta": meta_of(result)}
    if step == "peers":
        return {**result, "peers": [{key: value for key, value in entry.items() if key != "per_prompt"} for entry in result["peers"]]}
    if step == "overhead":
        return {"trace_overhead": [overhead(entry) for entry in result["trace_overhead"]], "aim": result["aim"], "meta": meta_of(result)}
    if step == "streaming":
        return {key: value for key, value in result.items() if key != "runs"}
    return dict(result)


def is_learned(entry: Record) -> bool:
    return "trained_against" in (entry.get("drafter") or {})


def speedups(entry: Record) -> dict[str, Any] | None:
    found = [one["speedup"] for one in entry["per_prompt"] if one["speedup"] is not None]
    return vars(Spread.of(found)) if found else None


def overhead(entry: Record) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(entry["recorded_seconds"], entry["plain_seconds"], strict=True)]
    return {"name": entry["name"], "ratio": entry["ratio"], "ratios": vars(Spread.of(ratios))}


def meta_of(result: Record) -> dict[str, Any]:
    return {key: result["meta"].get(key) for key in META}


def render(results: Results) -> str:
    """Returns the whole page; a step without a file leaves one line that says so."""
    parts = [HEAD, machines(results), "## Goals\n", goal_table(goals(results))]
    for title, step, draw in SECTIONS:
        parts.append(f"## {title}\n")
        parts.append(draw(results[step]["result"]) if step in results else f"Not measured yet (`python scripts/bench_report.py --only {step}`).\n")
    return "\n".join(parts)


def machines(results: Results) -> str:
    """Names the machine and the date of every step; usually there is one machine."""
    by: dict[str, list[str]] = {}
    for step, record in results.items():
        m = record["machine"]
        versions = ", ".join(f"{name} {number}" for name, number in m["versions"].items())
        threads = f", OMP_NUM_THREADS={m['threads']}" if m["threads"] else ""
        line = f"{m['processor']}, {m['cores']} cores{threads}, {m['memory_gib']} GiB, {m['system']}; {versions}; {record['date']}"
        by.setdefault(line, []).append(step)
    return "".join(f"- {line} ({', '.join(steps)})\n" for line, steps in by.items()) or "Nothing was measured yet.\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def goal_table(found: Sequence[Goal]) -> str:
    rows = [
        [goal.text, goal.aim, goal.shown, {None: "not measured", True: "met", False: "not met"}[goal.met] + (f"; {goal.why}" if goal.why else "")]
        for goal in found
    ]
    return table(["what", "goal", "measured", ""], rows)


def brackets(spread: Record | None, digits: int = 2) -> str:
    return "-" if spread is None else f"{spread['median']:.{digits}f} ({spread['low']:.{digits}f} to {spread['high']:.{digits}f})"


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    return "need not be equal" if value is None else f"{100 * value:.4g} %"


def several(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def source_of(meta: Record) -> str:
    return f"{several(meta['prompts']['count'], 'prompt')} of {meta['prompts']['file'] or 'the built-in set'}, up to {meta['max_new_tokens']} new tokens"


def what(meta: Record) -> str:
    return f"{meta['target']['name']}, {meta['device']['name']}, {meta['dtype']}, {source_of(meta)}, temperature {meta['sampling']['temperature']:g}.\n\n"


def forward_section(result: Record) -> str:
    first, floors = result["forward_ms"]["1"], result["floor"].get("forward", {})
    rows = []
    for nodes, ms in result["forward_ms"].items():
        spread, floor = result["forward_spread"][nodes], floors.get(nodes)
        least = ["-", "-"] if floor is None else [f"{floor['floor_ms']:.1f} ({floor['bound']})", number(floor["gap"], 1)]
        rows.append([nodes, brackets({"median": ms, **spread}, 1), number(ms / first), *least])
    text = f"One forward of the target for a tree of N nodes behind {result['cached_tokens']} tokens of text, in milliseconds. The floor is what bytes and arithmetic need at this machine's measured bandwidth and peak.\n\n"
    text += table(["nodes N", "C(N)", "C(N) / C(1)", "floor", "times the floor"], rows)
    if not result["batch_ms"]:
        return text
    sizes = sorted({n for row in result["batch_ms"].values() for n in row}, key=int)
    text += "\nB rows of N nodes each, in milliseconds:\n\n"
    return text + table(["B", *(f"N = {n}" for n in sizes)], [[b, *(number(row.get(n), 1) for n in sizes)] for b, row in result["batch_ms"].items()])


def rounds_section(result: Record) -> str:
    rows = []
    for name, costs in result["drafters"].items():
        for nodes, one in costs["budgets"].items():
            rows.append(
                [f"`{name}`", nodes if nodes != "0" else "-", *(number(one[f"{phase}_ms"], 2) for phase in ("draft", "verify", "accept", "commit", "record"))]
            )
    text = "One round by node budget, in milliseconds by phase; the step is one draft step.\n\n"
    steps = ", ".join(f"`{name}` {costs['step_ms']:.2f}" for name, costs in result["drafters"].items() if costs["step_ms"] is not None)
    return text + table(["drafter", "nodes", "draft", "verify", "rule", "commit", "events"], rows) + (f"\nDraft step: {steps}.\n" if steps else "")


def speed_section(result: Record) -> str:
    """Speed-ups with the terms of speedup = tau / ((C(nodes) + T_draft + T_rule + T_commit) / C(1))."""
    rows = []
    for entry in sorted(result["drafters"], key=lambda one: -(one["speedup"] or 0.0)):
        terms = entry["explained"] or {}
        costs = [number(terms.get(name)) for name in ("verify", "draft", "rule", "commit", "modelled")]
        speeds = [number(entry["speedup"]), brackets(entry["speedups"]), number(terms.get("wall")), number(entry["tokens_per_second"], 1)]
        rows.append([f"`{entry['name']}`", number(entry["tau"]), *costs, *speeds, share(entry["equal_to_baseline"])])
    head = ["drafter", "tau", "verify", "draft", "rule", "commit", "tau / terms", "speed-up", "by prompt", "by wall time", "tokens/s", "same text"]
    told = "Terms are per round, in C(1): one forward of plain decoding (`autoregressive`) in the same run. Speed-up is decoding against decoding; by wall time it includes the prompt and recording.\n\n"
    return what(result["meta"]) + told + table(head, rows)


def peers_section(result: Record) -> str:
    rows, notes = [], []
    for entry in result["peers"]:
        if entry["prompts"]:
            peak = entry["memory"].get("peak")
            memory = "-" if peak is None else f"{peak / 1e6:.0f} MB"
            rows.append(
                [entry["label"], brackets(entry["tokens_per_second"], 1), brackets(entry["speed_ratio"]), number(entry["tau"]), share(entry["equal"]), memory]
            )
        notes += [f"- {entry['label']}: {entry['reason']}." for _ in [0] if entry["reason"]]
        notes += [f"- {entry['label']}: {entry['about']}" + (f" {entry['notes']}." if entry["notes"] else "") for _ in [0] if entry["prompts"]]
        known = [one for one in entry["differences"] if one["gap"] is not None and one["resolution"]]
        notes += [
            f"- {entry['label']}, {one['prompt']}: differs at new token {one['position'] + 1}, logit gap {one['gap']:.2g}, {one['dtype']} resolves {one['resolution']:.2g}."
            for one in known
        ]
    meta = result["meta"]
    how = f"{source_of(meta)}, temperature 0, {several(meta['threads'], 'thread')}. A process each, prompts in turn."
    text = f"{how} The ratio and the equality are against `{result['reference']}`; tokens per second count the prompt's forward.\n\n"
    return text + table(["who", "tokens/s", "ratio", "tau", "same text", "peak memory"], rows) + "\n" + "\n".join(notes) + "\n"


def overhead_section(result: Record) -> str:
    rows = [[f"`{entry['name']}`", brackets(entry["ratios"], 3)] for entry in result["trace_overhead"]]
    return "Wall time of a recorded run over the same run without recording.\n\n" + table(["drafter", "ratio"], rows)


def streaming_section(result: Record) -> str:
    names = {"handler": "the app's handler, nobody connected", "client": "the app, and a client reads the stream over HTTP"}
    rows = [[text, brackets(result["decoding_ratio"][mode], 3), brackets(result["wall_ratio"][mode], 3)] for mode, text in names.items()]
    text = f"`{result['spec']}`, {result['tokens']} tokens, {result['repeats']} repeats, against the same run decoded alone, in the main thread of a process of its own. The page rests after each picture on purpose; that is in the wall time only.\n\n"
    return text + table(["", "decoding time", "wall time"], rows)


def startup_section(result: Record) -> str:
    names = {
        "import_specviz": "`import specviz`", "command_help": "`python -m specviz --help`", "first_screen": "`make app`, second start, until the page answers",
        "drawn_screen": "the same, until a browser has drawn it", "model_ready": "the same, until a first token came",
    }  # fmt: skip
    return table(["start", "seconds"], [[text, brackets(result[key], 3 if "import" in key else 2)] for key, text in names.items() if result.get(key)])


SECTIONS = (
    ("The cost of a forward", "profile", forward_section),
    ("The cost of a round", "profile", rounds_section),
    ("Speed-up at temperature 0", "explain", speed_section),
    ("Speed-up at temperature 1", "sampled", speed_section),
    ("Prompt lookup where copying pays", "lookup", speed_section),
    ("Against others", "peers", peers_section),
    ("Recording", "overhead", overhead_section),
    ("A client that watches", "streaming", streaming_section),
    ("Start-up", "startup", startup_section),
)
