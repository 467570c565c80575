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
    if not (folder / CONFIG).exists() or not (folder / WEIGHTS).exists():
        raise Missing(f"No {method} head in {folder}: expected {CONFIG} and {WEIGHTS}. Train one with `python -m specviz train {method}`.")
    try:
        raw = json.loads((folder / CONFIG).read_text())
        config = HeadConfig(raw["method"], raw["sizes"], Fingerprint.from_json(raw["target"]), raw.get("training", {}))
        weights = load_file(folder / WEIGHTS)
        vocabulary = weights.pop(VOCABULARY)
        _check_vocabulary(vocabulary, config.sizes["draft_vocab"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SafetensorError) as error:
        raise BadFile(f"The {method} head in {folder} cannot be read ({error}). Train it again or restore the folder.") from error
    if config.method != method:
        raise BadFile(f"{folder} holds a {config.method!r} head, expected {method!r}.")
    odd = [name for name, tensor in weights.items() if not bool(tensor.isfinite().all())]
    if odd:
        raise BadFile(f"The {method} head in {folder} holds numbers that are not finite in {', '.join(odd[:3])}. Train it again or restore the folder.")
    return HeadCheckpoint(folder, config, {name: tensor.float() for name, tensor in weights.items()}, vocabulary.long())


def _check_vocabulary(vocabulary: Tensor, size: int) -> None:
    """Raises ValueError with what is wrong about a draft vocabulary."""
    if vocabulary.dim() != 1 or vocabulary.is_floating_point() or not len(vocabulary):
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
