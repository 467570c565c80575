"""capture(): a function over tensors becomes a Replay, a CUDA graph where there is CUDA."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch

from specviz.errors import NotCaptured

WARM_UPS = 2  # eager runs before a capture: libraries choose kernels and allocate their workspaces in the first one
_ONE_AT_A_TIME = threading.Lock()  # CUDA allows one capture in a process


class Replay:
    """A function over tensors that never move: `fill` its inputs, `run` it, read its outputs.

    The outputs are the same tensors every time; they hold until the next run of this replay, or of another one captured into
    the same pool. Made by `capture`.
    """

    def __init__(self, function: Callable[..., Any], inputs: Mapping[str, torch.Tensor], outputs: Any, graph: torch.cuda.CUDAGraph | None) -> None:
        self.inputs, self.outputs = dict(inputs), outputs
        self._function, self._graph = function, graph  # a graph too keeps its function: what that reads has to stay where it is

    @property
    def captured(self) -> bool:
        """True for a CUDA graph, False where the function itself runs."""
        return self._graph is not None

    def fill(self, **values: torch.Tensor) -> None:
        """Copies new contents into the named inputs without waiting. Raises ValueError for an unknown name or another shape."""
        for name, value in values.items():
            held = self.inputs.get(name)
            if held is None or held.shape != value.shape:
                expected = f"one of {', '.join(self.inputs)}" if held is None else f"shape {tuple(held.shape)}"
                raise ValueError(f"input {name!r} of shape {tuple(value.shape)} does not fit this replay: expected {expected}")
            with torch.inference_mode():
                held.copy_(value, non_blocking=True)

    def run(self) -> Any:
        """Runs the function on what the inputs hold now and returns its outputs."""
        if self._graph is not None:
            self._graph.replay()
        else:
            with torch.inference_mode():
                _copy(self._function(**self.inputs), self.outputs)
        return self.outputs

    def __call__(self, **values: torch.Tensor) -> Any:
        """Fills inputs, runs, and returns the outputs."""
        self.fill(**values)
        return self.run()


def capture(function: Callable[..., Any], inputs: Mapping[str, torch.Tensor], *, pool: Any = None, stream: Any = None) -> Replay:
    """Returns `function(**inputs)` as a Replay whose first run has been made; raises NotCaptured, saying why, where CUDA cannot record it.

    inputs   tensors on one device. Their contents may change between runs; shapes, and whatever else the function reads, may not.
    returns  of the function: tensors, or tuples, lists and dicts of them, or None
    pool     torch.cuda.graph_pool_handle() that several replays share when none of them is read after another one ran; a shared
             pool needs a shared `stream`

    The function must not read a tensor's value on the host (.item(), .tolist(), `if tensor:`), make tensors from lists or
    index by lists. It runs WARM_UPS times before it is recorded, so running it twice must do no harm.
    """
    device = next(iter(inputs.values())).device
    with torch.inference_mode():
        if device.type != "cuda":
            return Replay(function, inputs, function(**inputs), None)
        try:
            with _ONE_AT_A_TIME, torch.cuda.device(device):
                return _record(function, inputs, pool, stream or torch.cuda.Stream())
        except RuntimeError as problem:  # out of memory and every CUDA error among them
            raise NotCaptured(f"it cannot be recorded as a CUDA graph ({_first_line(problem)})") from problem


def _record(function: Callable[..., Any], inputs: Mapping[str, torch.Tensor], pool: Any, stream: torch.cuda.Stream) -> Replay:
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            function(**inputs)
    current.wait_stream(stream)
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle() if pool is None else pool
    try:
        # thread_local: another thread may allocate and launch meanwhile (the app decodes in one thread and loads in another)
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            outputs = function(**inputs)
    except BaseException:
        # leaving torch.cuda.graph ends the capture first, and what that raises keeps it from giving the stream back
        torch.cuda.set_stream(current)
        with suppress(RuntimeError, AttributeError):  # nor does the allocator hear of the end, which the next capture would fail at; raises where it did
            torch._C._cuda_endAllocateToPool(current.device_index, pool)
        raise
    graph.replay()  # recording computes nothing
    return Replay(function, inputs, outputs, graph)


def _copy(new: Any, held: Any) -> None:
    """Puts what the function returned where its outputs are held: on a CPU they stay in place too, as a graph's do."""
    if isinstance(held, torch.Tensor):
        if new.shape != held.shape:
            raise ValueError(f"a captured function returned shape {tuple(new.shape)} after {tuple(held.shape)}; shapes must not depend on contents")
        if new.data_ptr() != held.data_ptr():
            held.copy_(new)
    elif isinstance(held, Mapping):
        for name in held:
            _copy(new[name], held[name])
    elif held is not None:
        for one, other in zip(new, held, strict=True):
            _copy(one, other)


def _first_line(problem: Exception) -> str:
    return (str(problem) or type(problem).__name__).splitlines()[0][:160]
