"""How a profile looks in a terminal: forwards by size, drafters' rounds by phase, each beside the least that the machine needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from specviz.analysis.profile import DrafterCosts, Profile
from specviz.commands.show import grid, number

BUSY = 1.5  # load per core from which a measurement is called disturbed: this process is part of the load


def profile_tables(profile: Profile) -> Iterator[Table]:
    """Yields the tables of what was measured."""
    yield forward_table(profile)
    if profile.batch:
        yield batch_table(profile)
    if profile.drafters:
        yield drafter_table(profile)


def forward_table(profile: Profile) -> Table:
    """Returns C(N): milliseconds, their quartiles, in forwards of one node, and the floor where bandwidth and peak are known."""
    target, device = profile.setting["target"], profile.setting["device"]
    table = grid(f"One forward of {target.get('name')} on {device.get('name')}, {profile.setting['dtype']}, {profile.cached} tokens in the cache")
    floor = profile.floor.get("forward", {})
    names = ("nodes", "ms", "quartiles", "C(N)/C(1)", *(("floor", "gap", "bound by") if floor else ()))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for nodes, spread in profile.forward.items():
        least = floor.get(str(nodes))
        cells = [str(nodes), number(spread.median), f"{spread.low:.2f} – {spread.high:.2f}", number(spread.median / profile.forward_ms(1))]
        table.add_row(*cells, *_floor_cells(least))
    return table


def batch_table(profile: Profile) -> Table:
    """Returns B x N: milliseconds of one forward, a row per number of nodes, a column per number of rows."""
    table = grid("Milliseconds by nodes (down) and rows (across)")
    table.add_column("nodes", justify="right")
    for rows in profile.batch:
        table.add_column(str(rows), justify="right")
    for nodes in sorted({nodes for row in profile.batch.values() for nodes in row}):
        table.add_row(str(nodes), *(number(row[nodes].median if nodes in row else None) for row in profile.batch.values()))
    return table


def drafter_table(profile: Profile) -> Table:
    """Returns milliseconds per round by phase, a row per drafter and node budget."""
    table, floor = grid("Rounds of each drafter, milliseconds by phase"), profile.floor.get("drafters", {})
    table.add_column("drafter", overflow="fold")
    for name in ("nodes", "steps", "draft", "verify", "rule", "commit", "events", *(("floor", "gap") if floor else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for key, costs in profile.drafters.items():
        for nodes, one in costs.rounds.items():
            ms = {name: spread.median for name, spread in one.ms.items()}
            least = floor.get(key, {}).get(str(nodes), {}).get("draft") if costs.weights else None
            gap = (number(least["floor_ms"]), number(least["gap"], 1)) if least else ("", "") if floor else ()
            phases = (number(ms[name], digits) for name, digits in (("draft", 1), ("verify", 1), ("accept", 2), ("commit", 2), ("record", 2)))
            table.add_row(Text(key), _nodes(nodes, one.nodes), _steps(one.steps), *phases, *gap)
    return table


def profile_remarks(profile: Profile) -> Iterator[str]:
    """Yields what the tables mean, the machine, and each drafter's cost per draft step."""
    yield "ms: median; quartiles beside it. rule: judging the tree. commit: keeping the accepted rows. events: recording, which is no decoding time."
    steps = "; ".join(f"{costs.key} {costs.step_ms:.2f} ms" for costs in profile.drafters.values() if _steps_known(costs))
    if steps:
        yield f"One draft step: {steps}."
    machine = profile.machine
    if machine.get("load_1m", 0.0) > BUSY * machine.get("cores", 1.0):
        yield f"The machine was busy (load {machine['load_1m']:.1f} on {machine['cores']:.0f} cores): these numbers are too high. Measure again when it is quiet."
    if "bandwidth_bytes_per_s" in machine:
        yield (
            f"This machine ({profile.setting['device'].get('processor') or 'processor unknown'}): {machine['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s in a large copy, "
            f"{machine['peak_flops_per_s'] / 1e9:.0f} GFLOP/s in a large product."
        )
        yield "floor: the least milliseconds, max(bytes / bandwidth, operations / peak); gap: measured over floor. Beside a drafter it is its draft's, which reads its head's weights once a round."


def _steps_known(costs: DrafterCosts) -> bool:
    return costs.step_ms is not None


def _nodes(asked: int, grown: float) -> str:
    """Returns the budget, and in brackets what the trees came to where texts let them grow less."""
    return str(asked) if not asked or grown > asked - 0.5 else f"{asked} ({grown:.0f})"


def _steps(steps: float) -> str:
    return "" if not steps else number(steps, 1)


def _floor_cells(least: Mapping[str, Any] | None) -> tuple[str, ...]:
    return (number(least["floor_ms"]), number(least["gap"], 1), str(least["bound"])) if least else ()
