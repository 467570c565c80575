"""How a bench looks in a terminal: one row a drafter, tasks beside each other, and every difference named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from specviz.analysis.budget import budget_text
from specviz.commands.show import FAINT, grid, milliseconds, number, percent

SHOWN_DEPTHS = 4
SHOWN_DIFFERENCES = 12


def bench_table(record: Mapping[str, Any]) -> Table:
    """Returns one row a drafter, the baseline first."""
    meta, baseline = record["meta"], record["baseline"]
    sampling = meta["sampling"]
    table = grid(
        f"{meta['prompts']['count']} prompts, {meta['max_new_tokens']} new tokens, T = {sampling['temperature']:g}, rule {meta['rule']['name']}, {meta['dtype']}"
    )
    table.add_column("drafter", overflow="fold", min_width=14)
    for name in ("tau", "tok/s", "speed-up", "equal", "by depth", "draft", "verify"):
        table.add_column(name, justify="right", no_wrap=True)
    plain = [milliseconds(baseline["seconds"].get(name, 0.0) / baseline["rounds"] if baseline["rounds"] else None) for name in ("draft", "verify")]
    cells = [baseline["name"], number(baseline["mean_acceptance_length"]), number(baseline["tokens_per_second"], 1), "1.00", "", "", *plain]
    table.add_row(*(Text(cell, FAINT) for cell in cells))
    for entry in record["drafters"]:
        table.add_row(*_row(entry))
    return table


def _row(entry: Mapping[str, Any]) -> list[str]:
    rounds, depths = entry["target_forwards"], entry["acceptance_by_depth"]["conditional"][:SHOWN_DEPTHS]
    shown = " ".join("–" if share is None else f"{100 * share:.0f}" for share in depths)
    each = [milliseconds(entry["seconds"].get(name, 0.0) / rounds if rounds else None) for name in ("draft", "verify")]
    return [
        entry["name"],
        number(entry["tau"]),
        number(entry["tokens_per_second"], 1),
        number(entry["speedup"]),
        percent(entry["equal_to_baseline"]),
        shown,
        *each,
    ]


def task_table(record: Mapping[str, Any]) -> Table:
    """Returns tau and speed-up per task, one column a drafter."""
    table = grid("By task: tau, speed-up")
    table.add_column("task")
    table.add_column("prompts", justify="right")
    for entry in record["drafters"]:
        table.add_column(entry["name"], justify="right", overflow="fold")
    for task, first in record["drafters"][0]["tasks"].items():
        cells = [entry["tasks"][task] for entry in record["drafters"]]
        table.add_row(Text(task), str(first["prompts"]), *(f"{number(cell['tau'])}  {number(cell['speedup'])}x" for cell in cells))
    return table


def bench_remarks(record: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines below the tables: definitions in short, why a share is missing, and each difference with how close it was."""
    yield "tau: tokens per target forward, the bonus token included, prefill excluded. by depth: % accepted at depth 1, 2, ..., given that the parent was. draft, verify: ms per round."
    for entry in record["drafters"]:
        budget = (entry.get("drafter") or {}).get("budget")
        if budget:
            yield f"{entry['name']}: {budget_text(budget)}"
        if entry["why_not_comparable"]:
            yield f"{entry['name']}: no share of equal texts, as {entry['why_not_comparable']}."
        for difference in entry["differences"][:SHOWN_DIFFERENCES]:
            yield f"{entry['name']}: {_difference(difference)}"
        more = len(entry["differences"]) - SHOWN_DIFFERENCES
        if more > 0:
            yield f"{entry['name']}: and {more} more differences (all are in the JSON)."


def explain_table(record: Mapping[str, Any]) -> Table:
    """Returns the formula of the speed-up, a row per drafter; costs are per round, in forwards of one node."""
    table = grid("Speed-up = tau / (verify + draft + rule + commit), each in forwards of one node, C(1)")
    table.add_column("drafter", overflow="fold", min_width=14)
    for name in ("tau", "verify", "draft", "rule", "commit", "(events)", "modelled", "measured", "dearest"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in record["drafters"]:
        terms = entry.get("explained")
        if terms:
            cells = (number(terms[name]) for name in ("tau", "verify", "draft", "rule", "commit", "events", "modelled", "measured"))
            table.add_row(Text(entry["name"]), *cells, terms["dearest"])
    return table


def explain_remarks(record: Mapping[str, Any]) -> Iterator[str]:
    """Yields what C(1) was, what the columns are, and what each drafter would gain if its dearest term cost nothing."""
    told = [(entry["name"], entry["explained"]) for entry in record["drafters"] if entry.get("explained")]
    yield f"C(1) = {told[0][1]['plain_ms']:.1f} ms, the verify phase of plain decoding in this bench. verify is C(nodes)/C(1). events is recording: no decoding time."
    yield "measured: tokens per second over plain decoding's, whose own rule and commit the model leaves out."
    for name, terms in told:
        wall = "" if terms["wall"] is None else f" By the clock, prefill and events included: {terms['wall']:.2f}x."
        yield f"{name}: {terms['dearest']} costs most; without it the model says {terms['without_dearest']:.2f}x instead of {terms['modelled']:.2f}x.{wall}"


def _difference(found: Mapping[str, Any]) -> str:
    where = f"{found['prompt']} differs at new token {found['position'] + 1}: id {found['other']} instead of {found['baseline']}"
    if found["gap"] is None or found["resolution"] is None:
        return where
    close = "within" if found["gap"] <= found["resolution"] else "beyond"
    return f"{where}; {found['unit']} gap {found['gap']:.3g}, {close} what {found['dtype']} tells apart there ({found['resolution']:.2g})"
