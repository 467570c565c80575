"""The other end of a worker: starts the process of a peer, calls it, and says in words why it ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from specviz.peers.base import Job, PeerFailed

ROOT = Path(__file__).resolve().parents[2]  # the folder that `specviz` is imported from
PATIENCE = 900.0  # seconds for one call, loading included
GOODBYE = 10.0  # seconds for a worker to end by itself


@dataclass(frozen=True)
class Reply:
    """What a call gave: its result as JSON, the seconds inside the worker, the worker's memory in bytes."""

    result: Any
    seconds: float
    memory: Mapping[str, int]


class Link:
    """One running worker. Its standard error goes to `log`, whose last line explains a failure."""

    def __init__(self, peer: str, job: Job, log: Path, python: Path | None = None, patience: float = PATIENCE) -> None:
        self.log, self.patience = log, patience
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(job.threads), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        command = [str(python or sys.executable), "-m", "specviz.peers._worker"]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8", env=environ)
        self.lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._send({"peer": peer, "job": job.to_json()})
            self.ready = self._receive()
        except PeerFailed:
            self.close()
            raise

    def call(self, method: str, **arguments: Any) -> Reply:
        """Calls a method of the peer. Raises PeerFailed when the worker ended or took too long."""
        self._send({"method": method, "arguments": arguments})
        return self._receive()

    def close(self) -> None:
        """Lets the worker end; one that does not is stopped."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended with a call still unread
            stdin.close()
        try:
            self.process.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")  # the worker has ended

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._epitaph()) from None

    def _receive(self) -> Reply:
        try:
            line = self.lines.get(timeout=self.patience)
        except Empty:
            self.process.kill()
            raise PeerFailed(f"no answer within {self.patience:g} seconds") from None
        if not line:
            raise PeerFailed(self._epitaph())
        return Reply(**json.loads(line))

    def _epitaph(self) -> str:
        status = self.process.wait()
        last = [line.strip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()][-1:]
        return f"its process ended with status {status}" + (f": {last[0][:300]}" if last else "")
