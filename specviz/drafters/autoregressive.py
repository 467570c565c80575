from __future__ import annotations

from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.tree import TokenTree


class Autoregressive(Drafter):
    """Drafts nothing: plain decoding, one token per forward. The baseline of every comparison."""

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        """Yields the root alone."""
        while True:
            seen = yield TokenTree((seen.next_token,), (-1,))
