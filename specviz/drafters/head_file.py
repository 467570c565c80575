"""Head checkpoints: a folder with config.json and model.safetensors (fp16), tied to its target by fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from specviz.drafters.head_sizes import METHODS, expected_shapes, read_sizes
from specviz.errors import BadFile, Missing
from specviz.sources import Fingerprint

CONFIG, WEIGHTS, VOCABULARY = "config.json", "model.safetensors", "vocabulary"


@dataclass(frozen=True)
class HeadConfig:
    """What a checkpoint says of itself: which method, its sizes, the target it was trained against, and how."""

    method: str
    sizes: Mapping[str, Any]
    fingerprint: Fingerprint
    training: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "sizes": dict(self.sizes),
            "target": self.fingerprint.to_json(),
            "training": dict(self.training),
        }


@dataclass(frozen=True)
class HeadCheckpoint:
    """A read checkpoint; `vocabulary` [draft vocab] maps a draft id to the target's token id."""

    folder: Path
    config: HeadConfig
    weights: dict[str, Tensor]
    vocabulary: Tensor


def save_head(folder: Path, config: HeadConfig, module: nn.Module, vocabulary: Tensor) -> None:
    """Writes the checkpoint; frozen rows of the target are not part of it. The weights are replaced last."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().half().contiguous() for name, tensor in module.state_dict().items()}
    tensors[VOCABULARY] = vocabulary.cpu().int()
    scratch = folder / f"{WEIGHTS}.part"
    save_file(tensors, scratch)
    (folder / CONFIG).write_text(json.dumps(config.to_json(), indent=1) + "\n")
    os.replace(scratch, folder / WEIGHTS)


def load_head(folder: Path, method: str) -> HeadCheckpoint:
    """Reads a checkpoint of `method`; raises Missing when it is not there and BadFile when it is damaged or of another method."""
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise Missing(f"No {method} head in {folder}: expected {CONFIG} and {WEIGHTS}. Train one with `python -m specviz train {method}`.")
    try:
        config = read_config(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
        if config.method != method:
            raise BadFile(f"{folder} holds a {config.method!r} head, expected {method!r}.")
        shapes = expected_shapes(method, read_sizes(method, config.sizes)) if method in METHODS else None
        weights = load_file(folder / WEIGHTS)
        if VOCABULARY not in weights:
            raise ValueError(f"{WEIGHTS} holds no draft vocabulary")
        vocabulary = weights.pop(VOCABULARY)
        check_vocabulary(vocabulary, config.sizes["draft_vocab"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError, SafetensorError) as error:
        raise BadFile(f"The {method} head in {folder} cannot be read ({error}). Train it again or restore the folder.") from error
    if shapes is not None:
        _check_shapes(folder, weights, shapes)
    if whole := [f"{name} ({tensor.dtype})" for name, tensor in weights.items() if not tensor.is_floating_point()]:
        raise BadFile(
            f"The {method} head in {folder} holds {', '.join(whole[:3])}, expected floating point. Quantised heads cannot be read; give the original."
        )
    weights = {name: tensor.float() for name, tensor in weights.items()}
    odd = [name for name, tensor in weights.items() if not bool(tensor.isfinite().all())]
    if odd:
        raise BadFile(f"The {method} head in {folder} holds numbers that are not finite in {', '.join(odd[:3])}. Train it again or restore the folder.")
    return HeadCheckpoint(folder, config, weights, vocabulary.long())


def read_config(raw: Any) -> HeadConfig:
    """Returns what a config.json says of its head; raises ValueError or TypeError for a record that is not a head's."""
    if not isinstance(raw, dict):
        raise ValueError(f"{CONFIG} holds a {type(raw).__name__}, expected an object")
    if lost := [name for name in ("method", "sizes", "target") if name not in raw]:
        raise ValueError(f"{CONFIG} does not say {lost[0]}")
    target, training = raw["target"], raw.get("training") or {}
    if not isinstance(target, dict) or not isinstance(target.get("weights"), str):
        raise ValueError(f"target in {CONFIG} names no weights")
    if not isinstance(training, dict):
        raise ValueError(f"training in {CONFIG} is a {type(training).__name__}, expected an object")
    return HeadConfig(raw["method"], raw["sizes"], Fingerprint.from_json(target), training)


def _check_shapes(folder: Path, weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises BadFile for weights that are not those of the sizes, before a module of these sizes is made."""
    wrong = [
        f"{name} is {list(weights[name].shape) if name in weights else 'missing'}, expected {list(shape)}"
        for name, shape in shapes.items()
        if name not in weights or tuple(weights[name].shape) != shape
    ]
    wrong += [f"{name} is no part of it" for name in sorted(weights.keys() - shapes.keys())]
    if wrong:
        raise BadFile(f"The head in {folder} does not fit its own {CONFIG}: {'; '.join(wrong[:3])}. Train it again or restore the folder.")


def check_vocabulary(vocabulary: Tensor, size: int) -> None:
    """Raises ValueError with what is wrong about a draft vocabulary."""
    if vocabulary.dim() != 1 or vocabulary.is_floating_point() or vocabulary.is_complex() or not len(vocabulary):
        raise ValueError(f"its draft vocabulary is {vocabulary.dtype} of shape {list(vocabulary.shape)}, expected a list of token ids")
    if len(vocabulary) != size:
        raise ValueError(f"its draft vocabulary has {len(vocabulary)} tokens, its sizes say {size}")
    if int(vocabulary.min()) < 0 or len(vocabulary.unique()) != len(vocabulary):
        raise ValueError("its draft vocabulary names a token twice or a negative one")


def hash_weights(folder: Path) -> str:
    """Returns the hash of a head's weights file, by which reports and costs know it; remembered while the file stays the same."""
    file = folder / WEIGHTS
    found = file.stat()
    return _hash(file, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _hash(file: Path, *stamp: int) -> str:
    """`stamp` is part of the key only."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def fill(module: nn.Module, checkpoint: HeadCheckpoint) -> nn.Module:
    """Puts the checkpoint's weights into `module`; raises BadFile naming the first tensors that do not fit."""
    try:
        module.load_state_dict(checkpoint.weights)
    except RuntimeError as error:
        raise BadFile(f"The head in {checkpoint.folder} does not fit its own config.json: {error}") from error
    return module.eval().requires_grad_(False)
