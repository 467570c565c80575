"""Figures of a head's report, one a file: `(report, others=()) -> plotly Figure`; the first line of the docstring is its caption."""
