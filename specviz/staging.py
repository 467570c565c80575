"""Numbers to the device and back without a wait in between: a list goes up while the device works, results come down in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def stage(values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Returns `values` as a tensor on the host from which `device` can copy while the host goes on."""
    return torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")


def send(values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Returns `values` as a tensor on `device`; the host does not wait for the copy.

    torch.tensor(values, device="cuda") and indexing by a list do wait, until everything enqueued before them is done.
    """
    return stage(values, device, dtype).to(device, non_blocking=True)


def fetch(tensors: Sequence[torch.Tensor]) -> list[list[float]]:
    """Returns the numbers of every tensor, flat, after ONE transfer: the only place where a round waits for its device.

    Several travel as float64, which holds token ids exactly.
    """
    if not tensors:
        return []
    flat = (tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat([tensor.reshape(-1).double() for tensor in tensors])).tolist()
    found, start = [], 0
    for tensor in tensors:
        found.append(flat[start : start + tensor.numel()])
        start += tensor.numel()
    return found
