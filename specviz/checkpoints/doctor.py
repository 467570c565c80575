"""The doctor: says what a checkpoint is, how large, and what is wrong with it, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specviz import checkpoints
from specviz.checkpoints._files import Files, open_files
from specviz.checkpoints._sidecar import read_sidecar, sidecar_fingerprint
from specviz.checkpoints._target import TargetFiles, open_target
from specviz.checkpoints.base import ERROR, Format, Problem
from specviz.errors import BadFile, BadInput, SpecvizError
from specviz.registry import discover, summary
from specviz.sources import user_path

ELSEWHERE = {
    "fusion_fc.": "an EAGLE-1 head of the speculators library",
    "mtp_layers.": "a multi-token-prediction (MTP) head",
    "mtp.": "a multi-token-prediction (MTP) head",
    "model.layers.": "a whole model and no head",
}


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found; `sizes` are counts and widths, `problems` the sentences."""

    path: str
    format: str | None
    title: str
    sizes: Mapping[str, Any]
    problems: tuple[Problem, ...]

    @property
    def usable(self) -> bool:
        """True when the head can be loaded and run here."""
        return self.format is not None and not any(problem.level == ERROR for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "problems": [asdict(problem) for problem in self.problems], "usable": self.usable}


def formats() -> Mapping[str, Format]:
    """Returns {name: format} for every file of this package that holds one."""
    return {name: cls() for name, cls in discover(checkpoints).items()}


def detect(files: Files) -> tuple[str, Format]:
    """Returns (name, format) of an opened checkpoint, told by config, names and shapes. Raises BadFile for one of no known format."""
    known = formats()
    for name in ("native", *(n for n in known if n != "native")):  # our own config is the clearest sign
        if known[name].matches(files):
            return name, known[name]
    for prefix, what in ELSEWHERE.items():
        if any(name.startswith(prefix) for name in files.entries):
            raise BadFile(f"{files.folder} holds {what}. What can be read: {', '.join(known)}.")
    seen = ", ".join(sorted(files.entries)[:4]) or "no tensors"
    raise BadFile(f"{files.folder} holds no head of a known format (it has {seen} ...). What can be read: {', '.join(known)}.")


def inspect(path: str | Path, target: str | Path | TargetFiles | None = None) -> Diagnosis:
    """Returns what the checkpoint at `path` is and what is wrong with it; damaged and unsafe files are a diagnosis too, not an error.

    With a target's name or folder, vocabulary, width, taps, rotary base, embeddings and fingerprint are compared with it.
    """
    opened = target if isinstance(target, TargetFiles) or target is None else open_target(target)
    try:
        files = open_files(user_path(path))
        name, form = detect(files)
    except BadFile as problem:
        return Diagnosis(str(path), None, "not readable as a head", {}, (Problem("unreadable", str(problem), ERROR),))
    found = [*_problems(form, files, opened), *_origin_problems(name, files, opened)]
    return Diagnosis(str(path), name, summary(form), _sizes(form, files, found), tuple(found))


def _problems(form: Format, files: Files, target: TargetFiles | None) -> list[Problem]:
    found: list[Problem] = []
    try:
        for problem in form.problems(files, target):  # one by one: what was found before a failure stays
            found.append(problem)  # noqa: PERF402
        if not any(problem.level == ERROR for problem in found):
            form.read(files, target)  # what loading refuses, the doctor names
    except BadInput as problem:
        if target is not None:  # without one, a head that needs it can still be sound
            found.append(Problem("unreadable", str(problem), ERROR))
    except SpecvizError as problem:
        found.append(Problem("unreadable", str(problem), ERROR))
    return found


def _sizes(form: Format, files: Files, found: list[Problem]) -> Mapping[str, Any]:
    """Returns what can be counted; nothing where the problems already say that it cannot."""
    try:
        return form.sizes(files)
    except SpecvizError as problem:
        if not any(p.level == ERROR for p in found):
            found.append(Problem("unreadable", str(problem), ERROR))
        return {}


def _origin_problems(name: str, files: Files, target: TargetFiles | None) -> list[Problem]:
    """A foreign checkpoint that was written here still knows its target's fingerprint."""
    if name == "native" or target is None:
        return []
    mine = sidecar_fingerprint(read_sidecar(files.folder))
    if mine is None or not mine.differences(target.fingerprint):
        return []
    return [
        Problem(
            "fingerprint_mismatch",
            f"The head was trained against weights {mine.weights}, the target {target.name} has {target.fingerprint.weights}: it runs but accepts less, train it again on these weights.",
        )
    ]
