"""transformers' `generate` with its default cache: the reference of the table."""

from __future__ import annotations

from specviz.peers._stock import Stock


class TransformersGenerate(Stock):
    """generate(do_sample=False) with the default DynamicCache."""

    label = "transformers, generate"
