"""App: what every page is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from specviz.errors import SpecvizError
from specviz.settings import Settings
from specviz.sources import short_name
from specviz.trace import Trace
from specviz.ui.engine import Engine
from specviz.ui.files import Downloads
from specviz.ui.stops import Stops

TRACES = Path(__file__).resolve().parents[2] / "traces"
MODEL_WORK = "model"  # concurrency_id of everything that runs the model: one at a time, whoever asks


@dataclass(frozen=True)
class App:
    """The engine and settings that all pages share, and what they keep per session."""

    settings: Settings
    engine: Engine
    traces: Path = TRACES
    stops: Stops = field(default_factory=Stops)
    downloads: Downloads = field(default_factory=Downloads)

    @property
    def target_name(self) -> str:
        """The folder name under models/ that drafters of this target live in."""
        return short_name(self.settings.target)

    def recorded(self) -> dict[str, Path]:
        """Returns the recorded runs that came with the app, by name."""
        return {path.name.removesuffix(".jsonl.gz"): path for path in sorted(self.traces.glob("*.jsonl.gz"))}

    def first_trace(self) -> Trace | None:
        """Returns the recorded run that the first screen shows; None when there is none that can be read."""
        for path in self.recorded().values():
            try:
                return Trace.load(path)
            except SpecvizError:
                continue
        return None

    def first_pair(self) -> tuple[Trace, Trace] | None:
        """Returns two recorded runs of the same prompt for the compare page, None when there are none."""
        seen: dict[str, Trace] = {}
        for path in self.recorded().values():
            try:
                trace = Trace.load(path)
                prompt = trace.started().prompt
            except SpecvizError:
                continue
            if prompt in seen:
                return seen[prompt], trace
            seen[prompt] = trace
        return None
