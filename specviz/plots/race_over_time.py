from __future__ import annotations

import plotly.graph_objects as go

from specviz.analysis.summary import baseline_of, measured_speedup
from specviz.analysis.timeline import timeline
from specviz.plots.base import ACCEPTED, BASELINE, empty, figure
from specviz.trace import Trace


def race_over_time(trace: Trace, row: int = 0) -> go.Figure:
    """Tokens over seconds of decoding (prefill left out), against the measured plain run of the same prompt and seed."""
    line, baseline, speedup = timeline(trace, row), baseline_of(trace, row), measured_speedup(trace, row)
    if len(line.tokens) < 2:
        return empty("Tokens over time", "No round yet.")
    title = f"{speedup:.2f} times as fast as plain" if speedup else "Tokens over time, no plain run yet"
    drawn = figure(title, "seconds of decoding", "new tokens")
    if baseline is not None:
        times = baseline.times or (0.0, baseline.decoding_seconds)  # without the time of each token: from the first to the last
        tokens = range(1, len(times) + 1) if baseline.times else (1, baseline.tokens)
        drawn.add_scatter(
            x=times,
            y=list(tokens),
            mode="lines",
            name="plain decoding",
            line={"color": BASELINE, "dash": "dash", "width": 2},
            hovertemplate="%{y} tokens after %{x:.2f} s<extra>plain decoding</extra>",
        )
    drawn.add_scatter(
        x=line.seconds,
        y=line.tokens,
        mode="lines",
        name="this run",
        line={"color": ACCEPTED, "width": 2.5, "shape": "hv"},
        hovertemplate="%{y} tokens after %{x:.2f} s<extra>this run</extra>",
    )
    return drawn
