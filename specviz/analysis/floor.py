"""The floor of a forward: the least bytes that must move and the least arithmetic that must be done, and how long the machine needs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """What decides the work of a forward: numbers in its weight matrices (LM head included), its attention, bytes per number."""

    weights: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    number_bytes: int


@dataclass(frozen=True)
class Work:
    """Bytes that must cross the memory bus at least once, and floating point operations (a multiply-add is two)."""

    bytes: int
    flops: int


@dataclass(frozen=True)
class Machine:
    """What the device reached when nothing else was asked of it: bytes per second of a large copy, flops per second of a large product."""

    bandwidth: float
    peak: float

    def floor_ms(self, work: Work) -> float:
        """Returns max(bytes / bandwidth, flops / peak) in milliseconds: no program on this machine is faster (the roofline)."""
        return 1000.0 * max(work.bytes / self.bandwidth, work.flops / self.peak)

    def bound(self, work: Work) -> str:
        """Returns which of the two decides: memory or arithmetic."""
        return "memory" if work.bytes / self.bandwidth >= work.flops / self.peak else "arithmetic"


def forward_work(sizes: Sizes, nodes: int, cached: int, batch: int = 1) -> Work:
    """Returns the work of verifying `nodes` nodes in each of `batch` rows behind `cached` committed tokens.

    Every weight is read once, keys and values of the cache once per row, logits written once; activations are left out, as
    they can stay in the processor's own caches.
    """
    rows, seen = batch * nodes, cached + nodes
    numbers = sizes.weights + 2 * batch * sizes.layers * sizes.kv_heads * sizes.head_dim * seen + rows * sizes.vocabulary
    attention = 4 * rows * sizes.layers * sizes.heads * sizes.head_dim * seen
    return Work(numbers * sizes.number_bytes, 2 * rows * sizes.weights + attention)


def draft_work(weights: int, number_bytes: int, rows: float) -> Work:
    """Returns the work of one round's draft: the head's weights read once, one row of it per drafted row."""
    return Work(weights * number_bytes, int(2 * rows * weights))


def floor_record(machine: Machine, work: Work, measured_ms: float) -> dict[str, Any]:
    """Returns the work, its floor and how many times longer the measured run took."""
    least = machine.floor_ms(work)
    return {**asdict(work), "floor_ms": least, "bound": machine.bound(work), "measured_ms": measured_ms, "gap": measured_ms / least if least else None}


def machine_of(record: Mapping[str, Any]) -> Machine:
    """Returns the machine of a profile's `machine` record."""
    return Machine(float(record["bandwidth_bytes_per_s"]), float(record["peak_flops_per_s"]))
