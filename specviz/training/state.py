"""The state of an interrupted fit: module, optimizer and progress, written so that a crash leaves the previous one whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from specviz.checks import is_count, is_number
from specviz.errors import BadFile, BadInput

PROGRESS = "progress.json"
FREE = ("stop_after", "within", "measure_every", "save_every")  # settings that may be others when a fit goes on


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


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Returns what progress.json says of the fit in this folder; None when there is none. Raises BadFile for a damaged one."""
    if not (folder / PROGRESS).exists():
        return None
    try:
        found: dict[str, Any] = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        if not (is_count(found["step"]) and is_count(found["total"]) and found["step"] <= found["total"] and is_number(found["seconds"])):
            raise ValueError("step, total or seconds is not what a fit writes there")
        if not isinstance(found["stem"], str) or not isinstance(found.get("settings", {}), dict):
            raise ValueError("stem or settings is not what a fit writes there")
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(folder, error) from error
    return found


def check_settings(folder: Path, progress: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raises BadInput where the fit in this folder has other settings than this one: going on would give a head that neither describes.

    A state written before settings were kept says nothing of them, and passes.
    """
    theirs = progress.get("settings")
    for name, mine in json.loads(json.dumps(dict(settings))).items():  # as a file holds them: lists for tuples
        if theirs is not None and name not in FREE and theirs.get(name) != mine:
            raise BadInput(f"{folder} holds a fit with {name}={theirs.get(name)}, this one has {mine}. Give --run another folder.")


def load_state(folder: Path, module: nn.Module, optimizer: Any, progress: Mapping[str, Any]) -> None:
    """Fills module and optimizer from the state that `progress` names. Raises BadFile where it is damaged or another module's."""
    try:
        module.load_state_dict(load_file(folder / f"{progress['stem']}.safetensors"))
        optimizer.load_state_dict(torch.load(folder / f"{progress['stem']}.optimizer", weights_only=True))
    except (OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError, UnpicklingError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> BadFile:
    told = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
    return BadFile(f"The saved state in {folder} does not fit this fit ({told}). Give --run another folder or delete it.")
