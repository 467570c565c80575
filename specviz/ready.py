"""Which drafters can run with a target, by what lies in the models folder; nothing is loaded."""

from __future__ import annotations

from pathlib import Path

from specviz import drafters
from specviz.analysis.head_report import load_report
from specviz.errors import SpecvizError
from specviz.registry import discover
from specviz.sources import DEFAULT_TARGET, models_dir


def ready_drafters(target: str = DEFAULT_TARGET) -> list[str]:
    """Returns every drafter that needs no trained head, or whose head is in the models folder."""
    heads = ready_heads(target)
    return [name for name, cls in discover(drafters).items() if not cls.learned or name in heads]


def ready_heads(target: str = DEFAULT_TARGET) -> dict[str, Path]:
    """Returns the folders of the trained heads that are there, by drafter."""
    folders = {name: models_dir() / target / name for name, cls in discover(drafters).items() if cls.learned}
    return {name: folder for name, folder in folders.items() if any(folder.glob("*.safetensors"))}


def measured_tau(folder: Path) -> float:
    """Returns what a head's report measured with its main tree; 0 without a report that can be read, which the Heads page explains."""
    try:
        main = load_report(folder).main
    except SpecvizError:
        return 0.0
    return main.tau if main else 0.0


def best_head(target: str = DEFAULT_TARGET) -> str | None:
    """Returns the drafter whose head accepts most by its own report, the first one where none has a report; None without any head."""
    heads = ready_heads(target)
    return max(heads, key=lambda name: measured_tau(heads[name]), default=None)
