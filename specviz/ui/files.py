"""Trace files of the page: saving for download into a bounded temporary folder, and opening what a person uploads."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import weakref
from collections import deque
from pathlib import Path

from specviz.trace import Trace

FILES_KEPT = 64


class Downloads:
    """A temporary folder that goes with the process; the oldest file is dropped when it holds too many."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="specviz-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)  # also at exit
        self._files: deque[Path] = deque()
        self._lock = threading.Lock()
        self._count = 0

    def save(self, trace: Trace, row: int = 0) -> Path:
        """Writes the trace and returns its file, named after drafter and seed."""
        meta = trace.started(row).meta
        drafter = meta["drafter"].get("name", "run") if isinstance(meta.get("drafter"), dict) else "run"
        name = re.sub(r"[^a-z0-9]+", "-", f"{drafter}-seed{meta.get('seed', 0)}".lower()).strip("-")
        with self._lock:
            self._count += 1
            folder = self._folder / str(self._count)
            folder.mkdir()
            path = trace.save(folder / f"specviz-{name[:60]}.jsonl.gz")
            self._files.append(path)
            while len(self._files) > FILES_KEPT:
                old = self._files.popleft()
                old.unlink(missing_ok=True)
                old.parent.rmdir()
        return path
