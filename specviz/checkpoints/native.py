from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from specviz.checkpoints._checks import check_finite, check_shapes
from specviz.checkpoints._write import half
from specviz.checkpoints.base import ERROR, Format, Head, Problem, build
from specviz.drafters._eagle3_module import Eagle3Sizes
from specviz.drafters._hydra_module import HydraSizes
from specviz.drafters.head_file import VOCABULARY, HeadConfig, check_vocabulary, read_config, save_head
from specviz.drafters.head_sizes import METHODS, Sizes, expected_shapes, read_sizes
from specviz.errors import BadFile, BadInput, SpecvizError
from specviz.sources import Fingerprint

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

UNKNOWN = "unknown"


class Native(Format):
    """This program's own heads: config.json with sizes and the target's fingerprint, model.safetensors in fp16."""

    method = "any"

    def matches(self, files: Files) -> bool:
        return isinstance(files.config.get("method"), str) and isinstance(files.config.get("sizes"), dict)

    def sizes(self, files: Files) -> dict[str, Any]:
        return {"method": files.config["method"], **files.config["sizes"]}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        try:
            method, sizes = files.config["method"], _sizes(files)
            expected = expected_shapes(method, sizes)
            read_config(files.config)
        except (SpecvizError, TypeError, ValueError) as problem:
            yield Problem("unreadable", f"{problem} Train it again or restore the folder.", ERROR)
            return
        yield from check_shapes(files, expected | {VOCABULARY: (sizes.draft_vocab,)}, extra=ERROR)
        yield from check_finite(files, expected)
        if VOCABULARY in files:
            yield from _vocabulary_problems(files.tensor(VOCABULARY), sizes.draft_vocab, target)
        yield from _target_problems(files, sizes, target)

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        sizes = _sizes(files)
        method = files.config["method"]
        weights = {name: files.tensor(name) for name in expected_shapes(method, sizes)}
        taps = sizes.taps if isinstance(sizes, Eagle3Sizes) else () if target is None else (target.layers - getattr(sizes, "state_offset", 0),)
        known = files.config.get("target")
        fingerprint = Fingerprint.from_json(known) if isinstance(known, dict) and "weights" in known else None
        training = files.config.get("training") or {}
        return Head(method, sizes, weights, files.tensor(VOCABULARY).long(), taps, training.get("base"), fingerprint, training)

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes the head for this program. A head of unknown origin gets the fingerprint of the named target, which is then the user's word."""
        sizes: Sizes = head.sizes
        if isinstance(sizes, Eagle3Sizes) and not sizes.taps:
            taps = head.taps or (target.default_taps if target else ())
            if not taps:
                raise BadInput("This head reads the official layers, which depend on the target's depth. Name the target: --target FOLDER.")
            sizes = replace(sizes, taps=taps)
        fingerprint = head.fingerprint or (target.fingerprint if target else Fingerprint(UNKNOWN))
        for name, tensor in head.weights.items():
            half(name, tensor)
        training = dict(head.training) | ({"base": head.base} if head.base else {})
        save_head(out, HeadConfig(head.method, sizes.to_json(), fingerprint, training), build(replace(head, sizes=sizes)), head.vocabulary)


def _sizes(files: Files) -> Sizes:
    method = files.config["method"]
    if method not in METHODS:
        raise BadFile(f"{files.folder} holds a {method!r} head, which this version does not know. Expected one of: {', '.join(METHODS)}.")
    try:
        return read_sizes(method, files.config["sizes"])
    except ValueError as problem:
        raise BadFile(
            f"The sizes in {files.folder}/config.json are not those of a {method} head ({problem}). It is of another version, or damaged."
        ) from problem


def _vocabulary_problems(ids: Tensor, size: int, target: TargetFiles | None) -> Iterator[Problem]:
    try:
        check_vocabulary(ids, size)
    except ValueError as problem:
        yield Problem("draft_vocabulary", f"The head cannot be used, as {problem}: the file is damaged, restore it.", ERROR)
        return
    if target and int(ids.max()) >= target.vocab:
        yield Problem(
            "vocabulary_mismatch",
            f"The draft vocabulary names token {int(ids.max())}, the target {target.name} has {target.vocab}: use the head with its own target.",
            ERROR,
        )


def _target_problems(files: Files, sizes: Sizes, target: TargetFiles | None) -> Iterator[Problem]:
    known = files.config.get("target")
    mine = Fingerprint.from_json(known) if isinstance(known, dict) and "weights" in known else Fingerprint(UNKNOWN)
    if mine.weights == UNKNOWN:
        yield Problem(
            "fingerprint_unknown", "The checkpoint does not say against which target's weights it was trained: measure its acceptance before relying on it."
        )
    elif target and mine.differences(target.fingerprint):
        told = "; ".join(f"{name} {a!r}, here {b!r}" for name, a, b in mine.differences(target.fingerprint))
        yield Problem(
            "fingerprint_mismatch",
            f"The head was trained against another target than {target.name} ({told}): it runs but accepts less, train it again on these weights.",
        )
    width = sizes.feature if isinstance(sizes, Eagle3Sizes) else sizes.hidden
    if target and width != target.hidden:
        yield Problem(
            "hidden_mismatch",
            f"The head reads states of width {width}, the target {target.name} gives {target.hidden}: use the head with its own target.",
            ERROR,
        )
    if target and isinstance(sizes, Eagle3Sizes) and not all(0 <= tap <= target.layers for tap in sizes.taps):
        yield Problem(
            "wrong_taps",
            f"The head reads the states entering layers {list(sizes.taps)}, and {target.name} has layers 0 to {target.layers - 1}: use the head with its own target.",
            ERROR,
        )
    if isinstance(sizes, HydraSizes) and target and sizes.state_offset > target.layers:
        yield Problem(
            "wrong_taps",
            f"The head reads the state {sizes.state_offset} layers before the end, and {target.name} has {target.layers}: use the head with its own target.",
            ERROR,
        )
