"""transformers' `generate` with a static cache; on CUDA it compiles its forward by itself."""

from __future__ import annotations

from typing import Any, ClassVar

from specviz.peers._stock import Stock


class TransformersStaticCache(Stock):
    """generate(do_sample=False, cache_implementation="static")."""

    label = "transformers, static cache"
    options: ClassVar[dict[str, Any]] = {"cache_implementation": "static"}
