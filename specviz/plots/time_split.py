from __future__ import annotations

import plotly.graph_objects as go

from specviz.analysis.summary import baseline_of, summarise
from specviz.plots.base import ACCEPTED, BASELINE, DRAFT, empty, figure
from specviz.trace import Trace

# verify is the one forward that plain decoding is made of, so it has the baseline's colour; purple means nothing elsewhere
COLOURS = {"draft": DRAFT, "verify": BASELINE, "accept": ACCEPTED, "commit": "#CC79A7"}


def time_split(trace: Trace, row: int = 0) -> go.Figure:
    """Decoding time per token, by phase: this run, and plain decoding where it was measured."""
    numbers, baseline = summarise(trace, row), baseline_of(trace, row)
    if not numbers.decoded_tokens or numbers.decoding_seconds <= 0.0:
        return empty("Where the time goes", "No round yet.")
    bars = {"this run": {name: (numbers.seconds.get(name) or 0.0) / numbers.decoded_tokens for name in COLOURS}}
    if baseline is not None and baseline.tokens > 1:
        bars = {"plain": {name: baseline.seconds.get(name, 0.0) / (baseline.tokens - 1) for name in COLOURS}} | bars
    drawn = figure(f"{1000 * numbers.decoding_seconds / numbers.decoded_tokens:.1f} ms a token", "ms per token", "")
    for name, colour in COLOURS.items():
        drawn.add_bar(
            x=[1000 * split[name] for split in bars.values()],
            y=list(bars),
            orientation="h",
            name=name,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"{name}: %{{x:.2f}} ms per token<extra>%{{y}}</extra>",
        )
    drawn.update_layout(barmode="stack", bargap=0.45, legend={"traceorder": "normal", "itemwidth": 30})
    drawn.update_xaxes(showgrid=True)
    return drawn
