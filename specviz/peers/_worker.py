"""The process of one peer: reads one JSON line a call from standard input, writes one JSON line an answer.

It is also run by the interpreter of a throw-away environment, so it imports nothing but this package and what the peer needs.
A failure ends the process; the last line of its standard error says why, and the other peers do not notice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specviz import peers
from specviz.peers._own import Own
from specviz.peers.base import Job, Peer
from specviz.registry import discover

OWN = "specviz"


def peer_class(name: str) -> type[Peer]:
    """Returns the class of a peer: a file of this package, or our own drafters for "specviz"."""
    return Own if name == OWN else discover(peers)[name]


def main() -> None:
    """Loads the peer that the first line names, then answers calls until standard input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    first = json.loads(sys.stdin.readline())
    peer = peer_class(first["peer"])()
    peer.load(Job.from_json(first["job"]))
    _write(channel, {name: version(name) for name in peer.packages}, 0.0)
    for line in sys.stdin:
        call = json.loads(line)
        start = time.perf_counter()
        result = getattr(peer, call["method"])(**call["arguments"])
        _write(channel, result, time.perf_counter() - start)


def _write(channel: Any, result: Any, seconds: float) -> None:
    plain = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
    channel.write(json.dumps({"result": plain, "seconds": seconds, "memory": memory()}) + "\n")
    channel.flush()


def memory() -> Mapping[str, int]:
    """Returns this process's resident bytes now and at most, and the most that a GPU held for it.

    On Linux the peak is read from /proc: what `getrusage` calls the peak starts at the parent's size.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        found = {name: int(lines[key].split()[0]) * 1024 for name, key in (("now", "VmRSS"), ("peak", "VmHWM")) if key in lines}
    else:
        import resource

        found = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpu_peak"] = int(torch.cuda.max_memory_allocated())
    return found


if __name__ == "__main__":
    main()
