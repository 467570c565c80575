"""How measuring tells a person that it takes a moment."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]  # one plain sentence


def silent(text: str) -> None:
    """Says nothing: for callers that nobody watches."""
