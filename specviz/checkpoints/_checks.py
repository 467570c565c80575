"""Checks that several formats share; each yields Problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.checkpoints._config import read_rope
from specviz.checkpoints.base import ERROR, WARNING, Problem
from specviz.drafters._layer import ROPE_KINDS
from specviz.drafters.head_sizes import check_scaling

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

SHOWN = 3  # names that a sentence lists


def check_shapes(files: Files, expected: Mapping[str, tuple[int, ...]], optional: Iterable[str] = (), *, extra: str = WARNING) -> Iterator[Problem]:
    """Compares names and shapes with what the config promises; tensors in neither list are a problem of the level `extra`."""
    missing = [name for name in expected if name not in files]
    if missing:
        yield Problem("missing_tensors", f"{_some(missing)} missing from {_names(files)}: the checkpoint is incomplete, fetch or save it again.", ERROR)
    wrong = [f"{name} is {list(files.shape(name))}, not {list(shape)}" for name, shape in expected.items() if name in files and files.shape(name) != shape]
    if wrong:
        yield Problem(
            "wrong_shapes", f"{'; '.join(wrong[:SHOWN])}: config.json and the weights are of different heads, put the right config.json beside them.", ERROR
        )
    others = sorted(set(files.entries) - set(expected) - set(optional))
    if others:
        told = "would be ignored" if extra == WARNING else "loading refuses the file"
        yield Problem(
            "unexpected_tensors",
            f"{_some(others)} in {_names(files)} but no part of this format, and {told}: check that the format is the one that trained the head.",
            extra,
        )


def check_rope(config: Mapping[str, Any], target: TargetFiles | None) -> Iterator[Problem]:
    """Which rotary base the head was trained with is only in its config: a wrong one costs acceptance and raises nothing."""
    rope = read_rope(config)
    if not rope.supported:
        yield Problem(
            "rope_scaling", f"config.json asks for rope scaling {rope.kind!r}, which this version does not run: expected one of {', '.join(ROPE_KINDS)}.", ERROR
        )
    elif rope.scaling is not None:
        try:
            check_scaling(rope.scaling)
        except ValueError as problem:
            yield Problem("rope_scaling", f"config.json has a rope scaling that cannot be run: {problem}. Correct it.", ERROR)
    if len({value for _, value in rope.forms}) > 1:
        said = " and ".join(f"{name} = {value:g}" for name, value in rope.forms)
        yield Problem(
            "rope_base_conflict", f"config.json names two rotary bases, {said}: keep the one that the head was trained with ({rope.theta:g} is used here)."
        )
    if not rope.forms:
        told = f", while the target rotates with {target.rope_theta:g}" if target and target.rope_theta != rope.theta else ""
        yield Problem(
            "rope_base_unset",
            f"config.json names no rotary base, so {rope.theta:g} applies{told}: add rope_theta with the value that the head was trained with (the official EAGLE-3 heads: 10000).",
        )
    elif target and target.rope_theta != rope.theta:
        yield Problem(
            "rope_base_mismatch",
            f"The head rotates with base {rope.theta:g}, the target with {target.rope_theta:g}: right only if the head was trained so; if it was trained with the target's base, correct rope_theta in config.json.",
        )


def check_activation(config: Mapping[str, Any]) -> Iterator[Problem]:
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        yield Problem("architecture", f"config.json asks for the activation {config['hidden_act']!r}: only silu is supported.", ERROR)


def check_vocabulary(vocab: int, target: TargetFiles | None, what: str) -> Iterator[Problem]:
    if target is not None and vocab != target.vocab:
        yield Problem(
            "vocabulary_mismatch",
            f"{what} {vocab} tokens, the target {target.name} has {target.vocab}: the head belongs to another tokenizer, use it with its own target.",
            ERROR,
        )


def check_hidden(hidden: int, target: TargetFiles | None) -> Iterator[Problem]:
    if target is not None and hidden != target.hidden:
        yield Problem(
            "hidden_mismatch",
            f"The head reads states of width {hidden}, the target {target.name} gives {target.hidden}: use the head with its own target.",
            ERROR,
        )


def check_head_count(said: Any, found: int, key: str) -> Iterator[Problem]:
    """The official Medusa config says 2 where its file holds 5 heads: the file is right."""
    if said is not None and said != found:
        yield Problem(
            "wrong_head_count",
            f"config.json says {key} = {said}, the file holds {found} heads: the file is followed here, set {key} to {found} so that other loaders do the same.",
        )


def check_embedding(files: Files, name: str, target: TargetFiles | None) -> Iterator[Problem]:
    """A frozen copy of the target's embeddings is dropped on reading; one that was trained would be lost."""
    if target is None or name not in files or files.shape(name) != tuple(target.embedding.shape):
        return
    if not same_numbers(files.tensor(name), target.embedding):
        yield Problem(
            "embedding_differs",
            f"{name} is not the target's embedding table: the head was trained against another checkpoint of {target.name}, or trained its embeddings; its acceptance must be measured again.",
        )


def check_finite(files: Files, names: Iterable[str]) -> Iterator[Problem]:
    bad = [name for name in names if name in files and files.tensor(name).is_floating_point() and not bool(torch.isfinite(files.tensor(name)).all())]
    if bad:
        yield Problem("not_finite", f"{_some(bad)} holding numbers that are not finite: the head is damaged, or its training diverged.", ERROR)


def same_numbers(mine: Tensor, theirs: Tensor) -> bool:
    """True when two tables are equal up to the rounding of half precision."""
    return mine.shape == theirs.shape and torch.allclose(mine.float(), theirs.float(), rtol=2**-7, atol=1e-4)


def _some(names: list[str]) -> str:
    listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return f"{listed} {'is' if len(names) == 1 else 'are'}"


def _names(files: Files) -> str:
    return ", ".join(file.name for file in files.weights[:2])
