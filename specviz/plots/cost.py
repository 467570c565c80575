from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import plotly.graph_objects as go

from specviz.analysis.profile import Profile
from specviz.analysis.profile_file import read_profile, setting_of
from specviz.analysis.summary import baseline_of, measured_speedup
from specviz.errors import BadFile
from specviz.plots.base import ACCEPTED, BASELINE, BONUS, empty, figure
from specviz.trace import Trace

TITLE = "What a forward costs by its nodes"


def cost(trace: Trace, row: int = 0) -> go.Figure:
    """Cost of a forward by its number of nodes on this run's machine, and the speed-up modelled from it beside the measured one."""
    points = verify_by_nodes(trace, row)
    if not points:
        return empty(TITLE, "No round yet.")
    profile, curve = profile_of(trace, row), curve_of(trace, row)
    unit = unit_ms(trace, profile, row)
    if unit is None:
        return _milliseconds(points)
    drawn = _figure(_title(points, unit), "plain steps · speed-up")
    if profile is not None:
        sizes = {nodes: spread.median / unit for nodes, spread in profile.forward.items()}
        _line(drawn, sizes, "cost C(N)", BASELINE, "%{x} nodes: a forward costs %{y:.2f} plain steps, measured by the profile of this machine")
    _add_curve(drawn, curve)
    costs = {nodes: value / unit for nodes, value in points.items()}
    _dots(drawn, costs, "cost, this run", BASELINE, "%{x} nodes: %{y:.2f} plain steps in this run")
    speedup = measured_speedup(trace, row)
    if speedup is not None:
        _dots(drawn, {max(points, key=lambda nodes: points[nodes]): speedup}, "speed, measured", ACCEPTED, "measured speed-up of this run: %{y:.2f}×")
    return drawn


def needs_profile(trace: Trace, row: int = 0) -> bool:
    """True when the machine of this run was not measured, so that the chart has no curve to draw."""
    return profile_of(trace, row) is None and not curve_of(trace, row)


def verify_by_nodes(trace: Trace, row: int = 0) -> dict[int, float]:
    """Returns the median milliseconds of this run's forwards by the size of their tree."""
    found: dict[int, list[float]] = {}
    for one in trace.rounds(row):
        seconds = one.seconds.get("verify")
        if seconds:
            found.setdefault(len(one.drafted.tokens), []).append(1000.0 * seconds)
    return {nodes: median(values) for nodes, values in sorted(found.items())}


def profile_of(trace: Trace, row: int = 0) -> Profile | None:
    """Returns what was measured for exactly the target, device, dtype and versions of this run; None elsewhere, or when the file is damaged."""
    setting = setting_of(trace.started(row).meta)
    try:
        return read_profile(setting) if setting is not None else None
    except BadFile:
        return None  # measuring again replaces it, which is what the page then offers


@dataclass(frozen=True)
class _Modelled:
    nodes: int
    verify: float
    speedup: float


def curve_of(trace: Trace, row: int = 0) -> list[_Modelled]:
    """Returns the budgets that `auto` weighed for this run, as its record tells them; empty where nodes were chosen by hand."""
    drafter = trace.started(row).meta.get("drafter")
    budget = drafter.get("budget") if isinstance(drafter, Mapping) else None
    curve = budget.get("curve") if isinstance(budget, Mapping) else None
    return [_Modelled(int(one["nodes"]), float(one["verify"]), float(one["speedup"])) for one in curve or ()]


def unit_ms(trace: Trace, profile: Profile | None, row: int = 0) -> float | None:
    """Returns milliseconds of one plain step: measured beside this run, else by the profile; None when it was never measured."""
    baseline = baseline_of(trace, row)
    if baseline is not None and baseline.tokens > 1 and baseline.decoding_seconds > 0.0:
        return 1000.0 * baseline.decoding_seconds / (baseline.tokens - 1)
    return None if profile is None else profile.forward_ms(1)


def _milliseconds(points: Mapping[int, float]) -> go.Figure:
    drawn = _figure("Other tree sizes: not measured yet", "ms per forward")
    _dots(drawn, points, "cost, this run", BASELINE, "%{x} nodes: %{y:.1f} ms per forward in this run")
    return drawn


def _figure(title: str, y: str) -> go.Figure:
    drawn = figure(title, "nodes per round", y)
    drawn.update_xaxes(rangemode="tozero")
    drawn.update_layout(legend={"itemwidth": 30})
    return drawn


def _title(points: Mapping[int, float], unit: float) -> str:
    nodes = max(points)
    return f"{nodes} node{'s cost' if nodes > 1 else ' costs'} {points[nodes] / unit:.2f} plain steps"


def _add_curve(drawn: go.Figure, curve: list[_Modelled]) -> None:
    if not curve:
        return
    speeds = {one.nodes: one.speedup for one in curve}
    _line(drawn, speeds, "speed, modelled", BONUS, "%{x} nodes: modelled speed-up %{y:.2f}×, from the head's report and this machine's costs", dash="dash")


def _line(drawn: go.Figure, values: Mapping[int, float], name: str, colour: str, hover: str, dash: str = "solid") -> None:
    style = {"color": colour, "width": 2, "dash": dash}
    drawn.add_scatter(x=list(values), y=list(values.values()), name=name, mode="lines", line=style, hovertemplate=hover + "<extra></extra>")


def _dots(drawn: go.Figure, values: Mapping[int, float], name: str, colour: str, hover: str) -> None:
    marker = {"color": colour, "size": 9, "line": {"width": 0}}
    drawn.add_scatter(x=list(values), y=list(values.values()), name=name, mode="markers", marker=marker, hovertemplate=hover + "<extra></extra>")
