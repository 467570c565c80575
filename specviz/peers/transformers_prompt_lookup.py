"""transformers' own prompt lookup."""

from __future__ import annotations

from typing import Any, ClassVar

from specviz.peers._stock import Stock


class TransformersPromptLookup(Stock):
    """generate(do_sample=False, prompt_lookup_num_tokens=10): the number that its candidate generator has as default."""

    label = "transformers, prompt lookup"
    options: ClassVar[dict[str, Any]] = {"prompt_lookup_num_tokens": 10}
    one_each = False
