"""The console of every verb: whatever a file, a model or a person put into a text, a terminal never obeys it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from specviz.analysis.words import harmless


class Terminal(Console):
    """Prints control characters of a text as \\x1b; rich's own, which move a progress bar, are kept."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))
