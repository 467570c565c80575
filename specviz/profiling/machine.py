"""What the device does at best: bytes per second of a large copy, operations per second of a large matrix product of the kind that forwards use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from specviz.analysis.floor import Machine, Sizes
from specviz.clock import Clock
from specviz.packed import PackedLinear, multiply, pack, packable
from specviz.target import Target

COPY_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}  # larger than any cache of the device
PRODUCT = {"cpu": 1536, "cuda": 8192}  # rows and columns of the square product


def measure_machine(target: Target, repeats: int = 5) -> Machine:
    """Measures the device that the target is on, in the target's dtype; copy and product take turns, medians count."""
    device, kind = target.device, "cuda" if target.device.type == "cuda" else "cpu"
    source = torch.ones(COPY_BYTES[kind] // 4, dtype=torch.float32, device=device)
    sink, size, clock = torch.empty_like(source), PRODUCT[kind], Clock(device)
    product = large_product(target, size)
    copies, products = [], []
    for _ in range(repeats + 1):
        with clock.phase("copy"):
            sink.copy_(source)
        with clock.phase("product"):
            product()
        spent = clock.take()
        copies.append(spent["copy"])
        products.append(spent["product"])
    moved = 2 * source.numel() * source.element_size()  # read and written
    return Machine(moved / median(copies[1:]), 2 * size**3 / median(products[1:]))


def large_product(target: Target, size: int) -> Callable[[], torch.Tensor]:
    """Returns a product of two square matrices, by the layers that the target's forwards run on: torch's own may be half as fast."""
    a, b = (torch.ones(size, size, dtype=target.dtype, device=target.device) for _ in range(2))
    if packable(target.model) is not None:
        return lambda: torch.mm(a, b)
    packed = pack(b)
    return lambda: multiply(a, packed)


def sizes_of(target: Target) -> Sizes:
    """Returns what decides the work of this target's forward."""
    config = target.text_config
    heads = int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or target.hidden_size // heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    return Sizes(count_weights(target.model), target.layers, heads, kv_heads, width, target.vocab_size, number_bytes(target.dtype))


def count_weights(module: nn.Module) -> int:
    """Returns how many numbers the module's matrices hold, packed layers included; embeddings are looked up, not multiplied."""
    total = 0
    for part in module.modules():
        if isinstance(part, (nn.Linear, PackedLinear)):
            total += part.in_features * part.out_features
        elif not isinstance(part, nn.Embedding):
            total += sum(parameter.numel() for parameter in part.parameters(recurse=False) if parameter.dim() > 1)
    return total


def number_bytes(dtype: torch.dtype) -> int:
    return torch.empty((), dtype=dtype).element_size()


def load_average() -> dict[str, float]:
    """Returns cores and, where the system tells it, how busy they were: a reader can tell a quiet measurement from a disturbed one."""
    cores = {"cores": float(os.cpu_count() or 1)}
    try:
        return {**cores, "load_1m": os.getloadavg()[0]}
    except (AttributeError, OSError):  # not every system knows it
        return cores


def now() -> str:
    """Returns the local date and time to the minute."""
    return time.strftime("%Y-%m-%dT%H:%M")
