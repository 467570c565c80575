"""How a long step tells a person what it is doing."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]  # takes one plain sentence


def silent(text: str) -> None:
    """Says nothing: for callers that nobody watches."""
