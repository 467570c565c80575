"""Heads that are installed for a target: what lies in their folders, and whether it belongs together. Nothing is loaded; no gradio here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from specviz.analysis.head_report import NAME, HeadReport, load_report
from specviz.drafters.head_file import CONFIG, WEIGHTS, hash_weights
from specviz.errors import BadFile, Missing
from specviz.registry import summary
from specviz.sources import DEFAULT_TARGET, hash_folder, models_dir
from specviz.ui import choices
from specviz.ui.app import App

T = TypeVar("T")
LARGEST = 2**20  # bytes of a config.json that is read


@dataclass(frozen=True)
class Head:
    """One installed head; `report` is None where none lies beside it, `problems` and `warnings` are sentences for the page."""

    name: str  # of its folder
    method: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    trained_against: str = ""  # hash of the target's weights
    megabytes: float | None = None
    report: HeadReport | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """What its drafter does, in one line."""
        return (
            summary(choices.thing("drafter", self.method))
            if self.method in choices.names("drafter")
            else f"A method that this specviz does not know: {self.method}."
        )

    @property
    def can_draft(self) -> bool:
        """True when the live page can draft with it: its folder is where its drafter looks."""
        return self.megabytes is not None and self.name == self.method and self.method in choices.names("drafter")


def head_folders(target: str) -> dict[str, Path]:
    """Returns the folders of the heads that are installed for a target, by name."""
    return {path.parent.name: path.parent for path in sorted((models_dir() / target).glob(f"*/{CONFIG}"))}


def read_heads(app: App) -> dict[str, Head]:
    """Returns every installed head; one that is damaged says so and leaves the others as they are."""
    weights = target_weights(app)
    return {name: read_head(folder, weights, app.settings.target) for name, folder in head_folders(app.target_name).items()}


def read_head(folder: Path, weights: str | None, target: str = DEFAULT_TARGET) -> Head:
    """Returns the head in a folder; `weights` is the hash of the installed target's weights, None when it is not known."""
    problems: list[str] = []
    config = _or_problem(_config, folder, problems) or {}
    report = _or_problem(load_report, folder, problems)
    method, trained, checkpoint = config.get("method"), _mapping(config, "target").get("weights"), folder / WEIGHTS
    head = Head(
        folder.name,
        method=method if isinstance(method, str) else folder.name,
        training=_mapping(config, "training"),
        trained_against=trained if isinstance(trained, str) else "",
        report=report,
    )
    if not checkpoint.is_file():
        return replace(head, problems=(*problems, f"There is no {WEIGHTS} in {folder}, so this head cannot draft. Train it again or restore the folder."))
    warnings = _stale(head, weights, hash_weights(folder), target)
    return replace(head, megabytes=checkpoint.stat().st_size / 1e6, problems=tuple(problems), warnings=tuple(warnings))


def _or_problem(read: Callable[[Path], T], folder: Path, problems: list[str]) -> T | None:
    """Returns what `read` finds in a folder, None where there is nothing; what cannot be read becomes a problem to show."""
    try:
        return read(folder)
    except Missing:
        return None
    except BadFile as problem:
        problems.append(str(problem))
        return None


def _stale(head: Head, weights: str | None, made_of: str, target: str) -> list[str]:
    """Returns what does not belong together any more."""
    found, report = [], head.report
    if weights and head.trained_against and head.trained_against != weights:
        found.append(
            f"STALE head: it was trained against target weights {head.trained_against}, the installed target has {weights}. It runs and the text "
            f"stays the target's own, but it accepts less. Train it again: {command('train', head.method, target)}"
        )
    if report is None:
        return found
    again = f"Measure again: {measure(head, target)}"
    if weights and report.target.weights != weights:
        found.append(f"STALE report: it was measured with target weights {report.target.weights}, the installed target has {weights}. {again}")
    if report.checkpoint != made_of:
        found.append(f"STALE report: it speaks of checkpoint {report.checkpoint}, the head in this folder is {made_of}. {again}")
    if report.method != head.method:
        found.append(f"This report is of a {report.method} head, the folder holds {head.method}. {again}")
    return found


def measure(head: Head, target: str) -> str:
    """Returns the command that measures a head."""
    return command("report", head.method, target, "--prompts PROMPTS.jsonl")


def command(verb: str, method: str, target: str, *more: str) -> str:
    """Returns a command line of specviz for a target."""
    of = () if target == DEFAULT_TARGET else ("--target", shlex.quote(target))
    return " ".join(("python -m specviz", verb, shlex.quote(method), *more, *of))


def target_weights(app: App) -> str | None:
    """Returns the hash of the loaded target's weights, else of its folder's; None when it is neither loaded nor under models/."""
    if app.engine.state.kind == "ready":
        return app.engine.target.fingerprint.weights
    folder = models_dir() / app.target_name
    return _folder_weights(folder, *(part for file in sorted(folder.glob("*.safetensors")) for part in _stamp(file)))


@lru_cache(maxsize=8)
def _folder_weights(folder: Path, *stamp: int) -> str | None:
    """`stamp` makes it hash again when a file changed; the hash is also remembered in the folder, where that is writable."""
    from safetensors import SafetensorError

    try:
        return hash_folder(folder)
    except (SafetensorError, OSError):
        return None  # the engine says what is wrong with the target


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        record = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= LARGEST else None
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{path} cannot be read ({str(problem)[:120]}). Train the head again or restore the folder.") from problem
    if not isinstance(record, dict):
        raise BadFile(f"{path} is no JSON object of a head. Train the head again or restore the folder.")
    return record


def _mapping(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def report_file(target: str, name: str) -> Path | None:
    """Returns the report beside a head, None where there is none or no such head."""
    folder = head_folders(target).get(name)
    return folder / NAME if folder is not None and (folder / NAME).is_file() else None
