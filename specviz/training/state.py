"""The state of an interrupted fit: module, optimizer and progress, written so that a crash leaves the previous one whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from specviz.errors import BadFile

PROGRESS = "progress.json"


def save_state(folder: Path, module: nn.Module, optimizer: Any, progress: Mapping[str, Any]) -> None:
    """Writes the state at a step to its own files, then names them in progress.json, then drops the older ones."""
    stem = f"step{progress['step']}"
    save_file({k: v.contiguous() for k, v in module.state_dict().items()}, folder / f"{stem}.safetensors")
    torch.save(optimizer.state_dict(), folder / f"{stem}.optimizer")
    scratch = folder / f"{PROGRESS}.part"
    scratch.write_text(json.dumps(dict(progress) | {"stem": stem}))
    os.replace(scratch, folder / PROGRESS)
    for old in [*folder.glob("step*.safetensors"), *folder.glob("step*.optimizer")]:
        if old.stem != stem:
            old.unlink()


def load_state(folder: Path, module: nn.Module, optimizer: Any) -> dict[str, Any] | None:
    """Fills module and optimizer from the last saved state and returns its progress; None when there is none."""
    if not (folder / PROGRESS).exists():
        return None
    try:
        progress = json.loads((folder / PROGRESS).read_text())
        module.load_state_dict(load_file(folder / f"{progress['stem']}.safetensors"))
        optimizer.load_state_dict(torch.load(folder / f"{progress['stem']}.optimizer", weights_only=True))
    except (KeyError, ValueError, RuntimeError, FileNotFoundError) as error:
        raise BadFile(f"The saved state in {folder} does not fit this fit ({error}). Give --run another folder or delete it.") from error
    return dict(progress)
