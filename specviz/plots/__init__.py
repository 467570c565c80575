"""Figures, one a file: `(trace, row=0) -> plotly Figure`, made from traces and analysis alone."""
