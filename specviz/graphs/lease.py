"""Lease: the buffers of one run, and the graphs that write to them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from specviz.graphs.capture import Replay

NODES = (1, 8, 16, 32, 64, 128, 256)  # a tree is padded to the next of these; a larger one is verified without a graph
VIEW = 512  # slots that attention looks at: this or twice, four times ... as many
STEP = 512  # slots of a lease come in multiples of this, so that runs of about the same length can use each other's graphs
MOST_GRAPHS = 32  # of one lease; the one that was not used for longest makes room
MOST_IDLE = 4  # leases kept for the next run


@dataclass(frozen=True)
class Envelope:
    """The shape of a captured verification: nodes a row, slots that attention looks at, and which states are tapped."""

    nodes: int
    view: int
    taps: tuple[int, ...]


class Lease:
    """A key/value buffer of `rows` x `slots` with the graphs captured on it; one run has it at a time."""

    def __init__(self, layers: int, rows: int, slots: int, device: torch.device) -> None:
        self.rows, self.slots = rows, slots
        from specviz.cache import TreeCache  # here, because it loads transformers, and drafters are listed without that

        self.writer = TreeCache(layers, rows, slots)  # what the captured model writes through: its buffer's address is in the graphs
        self.graphs: OrderedDict[Envelope, Replay] = OrderedDict()
        self.pool: Any = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    @property
    def buffer(self) -> torch.Tensor | None:
        return self.writer.buffer

    def allocate(self, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """Returns the buffer, all zeros: made once, wiped for every later run."""
        if self.writer.buffer is None:
            self.writer.buffer = torch.zeros(shape, dtype=like.dtype, device=like.device)
        else:
            self.writer.buffer.zero_()
        return self.writer.buffer

    def graph(self, envelope: Envelope, make: Callable[[], Replay]) -> Replay:
        """Returns the graph of an envelope, made where there is none yet."""
        if envelope not in self.graphs:
            while len(self.graphs) >= MOST_GRAPHS:
                self.graphs.popitem(last=False)
            self.graphs[envelope] = make()
        self.graphs.move_to_end(envelope)
        return self.graphs[envelope]


def slots_for(capacity: int) -> int:
    """Returns how many slots a cache of this capacity leases: the padding of the last tree must fit behind it."""
    return -(-(capacity + NODES[-1]) // STEP) * STEP


def nodes_for(width: int) -> int | None:
    """Returns the nodes of the envelope for a tree of `width`, None for a tree that is too large for all of them."""
    return next((nodes for nodes in NODES if nodes >= width), None)


def view_for(needed: int, slots: int) -> int:
    """Returns how many slots attention looks at when `needed` are in use: few sizes, so that few graphs are captured."""
    view = VIEW
    while view < needed:
        view *= 2
    return min(view, slots)


class Lent(Protocol):
    """What can be lent: something for so many rows, with room for so many tokens each."""

    rows: int
    slots: int


OneLease = TypeVar("OneLease", bound=Lent)


class Leases(Generic[OneLease]):
    """The leases that no run uses now, newest last; at most `most` of them."""

    def __init__(self, most: int = MOST_IDLE) -> None:
        self._most, self._idle = most, list[OneLease]()
        self._lock = threading.Lock()

    def take(self, rows: int, slots: int) -> OneLease | None:
        """Returns the smallest idle lease of so many rows with at least so many slots; None when there is none."""
        with self._lock:
            fitting = [lease for lease in self._idle if lease.rows == rows and lease.slots >= slots]
            if not fitting:
                return None
            found = min(fitting, key=lambda lease: lease.slots)
            self._idle.remove(found)
            return found

    def give_back(self, lease: OneLease) -> None:
        """Keeps the lease for the next run; the oldest one goes when there are too many."""
        with self._lock:
            self._idle = [*self._idle, lease][-self._most :]
