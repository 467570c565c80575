"""Shape files: a searched tree as rank paths, with what it was made from. A file is untrusted input."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from specviz.errors import BadFile, BadInput, Missing
from specviz.shapes.base import MAX_NODES
from specviz.sources import DEFAULT_TARGET, models_dir, user_path

FORMAT = "specviz-shape-1"
FOLDER = "shapes"  # below a target's folder
MOST_BYTES = 1 << 20
MOST_DEPTH = 16


@dataclass(frozen=True)
class ShapeFile:
    """A static tree: `paths` list every node below the root, a parent before its children, best node first.

    `made` is what the file says of its making: drafter, target, text, rank table, expected and measured length.
    """

    name: str
    paths: tuple[tuple[int, ...], ...]
    made: Mapping[str, Any]

    @property
    def nodes(self) -> int:
        """The root counts."""
        return len(self.paths) + 1

    @property
    def depth(self) -> int:
        return max(map(len, self.paths), default=0)

    def to_json(self) -> dict[str, Any]:
        paths = [list(path) for path in self.paths]
        return {"format": FORMAT, "name": self.name, "nodes": self.nodes, "depth": self.depth, **self.made, "paths": paths}


def write_shape(path: Path, shape: ShapeFile) -> None:
    """Writes the file in one move; makes its folder. Raises BadFile for a tree that could not be read back."""
    _check_paths([list(found) for found in shape.paths], path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in shape.to_json().items()]
    scratch = path.with_name(f"{path.name}.part")
    scratch.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(scratch, path)


def shape_names() -> dict[str, Path]:
    """Returns the shape files below the models folder by name; a name of another than the default target begins with the target's."""
    own, others = dict[str, Path](), dict[str, Path]()
    for file in sorted(models_dir().glob(f"*/{FOLDER}/*.json")):
        target = file.parent.parent.name
        if target == DEFAULT_TARGET:
            own[file.stem] = file
        else:
            others[f"{target}/{file.stem}"] = file
    return own | others


def find_shape(text: str) -> ShapeFile:
    """Reads the shape called `text`, or the file of that path when it ends in .json.

    Raises Missing naming what exists, BadInput for an empty name, BadFile for a file that is no tree.
    """
    if not text.strip():
        raise BadInput(f"file='' names no tree. {_known()}")
    target, slash, stem = text.rpartition("/")
    path = user_path(text) if text.endswith(".json") else models_dir() / (target if slash else DEFAULT_TARGET) / FOLDER / f"{stem}.json"
    if not os.path.isfile(path):  # unlike Path's, it answers for names that cannot be any file's
        raise Missing(f"No shape file {text[:100]!r}. {_known()}")
    return read_shape(path)


def _known() -> str:
    names = shape_names()
    have = f"There are: {', '.join(names)}. " if names else ""
    return f"{have}Search one with `python -m specviz shape search --drafter medusa --nodes 64`, or give the path of a .json file."


def read_shape(path: Path) -> ShapeFile:
    """Reads and checks a shape file; once per version of the file. Raises BadFile naming the file and what is wrong."""
    try:
        state = path.stat()
    except OSError as problem:
        raise Missing(f"Could not read {path}: {problem.strerror or problem}.") from None
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, changed: int, size: int) -> ShapeFile:
    """`changed` is part of the key only: a shape is asked for every round, and its file is read again when it was written anew."""
    if size > MOST_BYTES:
        raise BadFile(f"{path.name} has {size} bytes, more than a shape file can have ({MOST_BYTES}).")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{path.name} is no shape file: it cannot be read as JSON ({type(problem).__name__}).") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise BadFile(f"{path.name} is no shape file. Expected JSON with the format {FORMAT!r}.")
    paths = _check_paths(raw.get("paths"), path.name)
    made = {key: value for key, value in raw.items() if key not in ("format", "name", "nodes", "depth", "paths")}
    shape = ShapeFile(str(raw.get("name") or path.stem), paths, made)
    if (raw.get("nodes"), raw.get("depth")) != (shape.nodes, shape.depth):
        raise BadFile(f"{path.name} is damaged: its paths make a tree of {shape.nodes} nodes and depth {shape.depth}, and it says something else.")
    return shape


def _check_paths(paths: Any, name: str) -> tuple[tuple[int, ...], ...]:
    """Returns the paths, known to make one tree within the limits."""
    if not isinstance(paths, Sequence) or isinstance(paths, str) or not paths:
        raise BadFile(f"{name}: `paths` is missing. Expected a list of rank paths such as [[0], [0, 0], [1]].")
    if len(paths) >= MAX_NODES:
        raise BadFile(f"{name} makes a tree of {len(paths) + 1} nodes, more than {MAX_NODES}.")
    seen: set[tuple[int, ...]] = {()}
    for number, path in enumerate(paths, 1):
        if not isinstance(path, list) or not 0 < len(path) <= MOST_DEPTH or not all(type(rank) is int and 0 <= rank < MAX_NODES for rank in path):
            raise BadFile(f"{name}: path {number} is no rank path. Expected 1 to {MOST_DEPTH} whole numbers from 0 to {MAX_NODES - 1}.")
        if tuple(path) in seen:
            raise BadFile(f"{name}: path {number} is listed twice.")
        if tuple(path[:-1]) not in seen:
            raise BadFile(f"{name}: path {number} comes before its parent {path[:-1]}, or the parent is missing.")
        seen.add(tuple(path))
    return tuple(tuple(path) for path in paths)
