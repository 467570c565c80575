"""Writing a foreign checkpoint folder: config, weights in fp16, and our record beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specviz.checkpoints._sidecar import write_sidecar
from specviz.checkpoints.base import FP16_LIMIT, Head
from specviz.errors import BadFile

if TYPE_CHECKING:
    from specviz.checkpoints._target import TargetFiles


def write_checkpoint(out: Path, head: Head, config: Mapping[str, Any], tensors: Mapping[str, Tensor], file: str = "model.safetensors") -> None:
    """Writes config.json, the weights and the record; floating-point tensors become fp16. Raises BadFile for numbers that do not fit."""
    out.mkdir(parents=True, exist_ok=True)
    stored = {name: half(name, tensor) if tensor.is_floating_point() else tensor.contiguous() for name, tensor in tensors.items()}
    if file.endswith(".safetensors"):
        save_file({name: tensor.clone() for name, tensor in stored.items()}, out / file)  # it refuses tensors that share memory
    else:
        torch.save(stored, out / file)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_sidecar(head, out)


def half(name: str, tensor: Tensor) -> Tensor:
    """Returns the tensor as fp16 for a file; raises BadFile when a number in it does not fit."""
    if tensor.numel() and not bool((tensor.detach().float().abs() <= FP16_LIMIT).all()):
        raise BadFile(f"{name} holds numbers that are not finite or beyond {FP16_LIMIT:g}, the largest in fp16. The head is damaged or was never fit for fp16.")
    return tensor.detach().to("cpu", torch.float16).contiguous()


def named(head: Head, target: TargetFiles | None) -> Head:
    """Returns the head with the target's name filled in where it has none."""
    return replace(head, base=head.base or (target.name if target else None))
