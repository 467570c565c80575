"""Loading a head of any format, and writing it in another."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specviz.checkpoints._files import open_files
from specviz.checkpoints._target import TargetFiles, open_target
from specviz.checkpoints.base import ERROR, Head
from specviz.checkpoints.doctor import detect, formats
from specviz.checkpoints.serving import VLLM_FORMS, Snippet, draft_length, vllm_snippet
from specviz.errors import BadFile, BadInput
from specviz.sources import user_path

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
    files = open_files(user_path(path))
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
    if to not in formats():
        raise BadInput(f"No format {to!r}. There are: {', '.join(formats())}.")
    opened = _opened(target)
    head = load(path, opened)
    return Converted(write(head, to, user_path(out), opened), to, head, head.notes)


def write(head: Head, to: str, out: Path, target: TargetFiles | None) -> Path:
    """Writes a head in a format, as a whole or not at all; returns the folder."""
    known = formats()
    if known[to].method not in ("any", head.method):
        fits = [name for name, form in known.items() if form.method in ("any", head.method)]
        raise BadInput(f"This is a {head.method} head, which cannot become {to}. Formats for it: {', '.join(fits)}.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is not empty. Give a new folder, so that no file of another checkpoint stays beside this one.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".convert-") as scratch:
            made = Path(scratch) / out.name
            known[to].write(head, made, target)
            if out.exists():
                out.rmdir()
            made.rename(out)
    except OSError as problem:
        raise BadInput(f"Cannot write {out}: {problem.strerror or problem}. Give a folder in a place that may be written to.") from None
    return out


def export_vllm(path: str | Path, out: str | Path, target: str | Path | TargetFiles, length: int | None = None) -> Snippet:
    """Writes the head as vLLM loads it, with its speculative_config in vllm.json, and returns what to pass to vLLM.

    vLLM's EAGLE layer has no fc bias and refuses one, so it is left out, and the snippet says so.
    """
    opened = _opened(target)
    head = load(path, opened)
    if head.method not in VLLM_FORMS:
        raise BadInput(f"vLLM cannot run {head.method} heads. It runs: {', '.join(VLLM_FORMS)}.")
    chosen = draft_length(head, length)
    served = _without_fc_bias(head)
    folder = write(served, VLLM_FORMS[head.method], user_path(out), opened)
    name = str(opened.files.folder) if opened else head.base or "TARGET"
    notes = () if served is head else ("fc.bias was left out, which vLLM's EAGLE layer cannot take: expect lower acceptance than measured here.",)
    snippet = vllm_snippet(head, folder.resolve(), name, chosen, notes)
    (folder / SERVING).write_text(json.dumps(snippet.config, indent=1) + "\n")
    return snippet


def _without_fc_bias(head: Head) -> Head:
    bias = head.weights.get("fc.bias")
    if head.method != "eagle" or bias is None or not bool(bias.any()):
        return head
    return replace(head, weights={**head.weights, "fc.bias": torch.zeros_like(bias)})


def _opened(target: str | Path | TargetFiles | None) -> TargetFiles | None:
    return target if target is None or isinstance(target, TargetFiles) else open_target(target)
