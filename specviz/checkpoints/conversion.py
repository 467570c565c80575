"""Loading a head of any format, and writing it in another."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from specviz.checkpoints._files import open_files
from specviz.checkpoints._target import TargetFiles, open_target
from specviz.checkpoints.base import ERROR, Head
from specviz.checkpoints.doctor import detect, formats
from specviz.checkpoints.serving import VLLM_FORMS, Snippet, draft_length, vllm_snippet
from specviz.errors import BadFile, BadInput

SERVING = "vllm.json"


@dataclass(frozen=True)
class Converted:
    """Where a converted head lies, in which format, and what should be known about it."""

    folder: Path
    format: str
    head: Head
    notes: tuple[str, ...]


def load(path: str | Path, target: str | Path | TargetFiles | None = None) -> Head:
    """Returns the head at `path`, whatever its format; its notes are the doctor's warnings.

    Raises BadFile with the first thing that makes it unusable, BadInput where the target must be named.
    """
    opened = _opened(target)
    files = open_files(Path(path).expanduser())
    _, form = detect(files)
    problems = list(form.problems(files, opened))
    for problem in problems:
        if problem.level == ERROR:
            raise BadFile(f"{path}: {problem.text}")
    head = form.read(files, opened)
    return replace(head, notes=(*head.notes, *(problem.text for problem in problems)))


def convert(path: str | Path, to: str, out: str | Path, target: str | Path | TargetFiles | None = None) -> Converted:
    """Writes the head at `path` in the format called `to` into the new folder `out`; nothing is left there when it cannot be done.

    `target` is needed where a format holds what ours shares with the target. Raises BadInput for a format that cannot hold the head.
    """
    known, opened = formats(), _opened(target)
    if to not in known:
        raise BadInput(f"No format {to!r}. There are: {', '.join(known)}.")
    head = load(path, opened)
    if known[to].method not in ("any", head.method):
        fits = [name for name, form in known.items() if form.method in ("any", head.method)]
        raise BadInput(f"{path} holds a {head.method} head, which cannot become {to}. Formats for it: {', '.join(fits)}.")
    place = Path(out).expanduser()
    if place.exists() and any(place.iterdir()):
        raise BadInput(f"{place} is not empty. Give a new folder, so that no file of another checkpoint stays beside this one.")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".convert-") as scratch:
        made = Path(scratch) / place.name
        known[to].write(head, made, opened)
        if place.exists():
            place.rmdir()
        made.rename(place)
    return Converted(place, to, head, head.notes)


def export_vllm(path: str | Path, out: str | Path, target: str | Path | TargetFiles, length: int | None = None) -> Snippet:
    """Writes the head as vLLM loads it, with its speculative_config in vllm.json, and returns what to pass to vLLM."""
    opened = _opened(target)
    head = load(path, opened)
    if head.method not in VLLM_FORMS:
        raise BadInput(f"vLLM cannot run {head.method} heads. It runs: {', '.join(VLLM_FORMS)}.")
    chosen = draft_length(head, length)
    done = convert(path, VLLM_FORMS[head.method], out, opened)
    name = str(opened.files.folder) if opened else head.base or "TARGET"
    snippet = vllm_snippet(head, done.folder.resolve(), name, chosen)
    (done.folder / SERVING).write_text(json.dumps(snippet.config, indent=1) + "\n")
    return snippet


def _opened(target: str | Path | TargetFiles | None) -> TargetFiles | None:
    return target if target is None or isinstance(target, TargetFiles) else open_target(target)
