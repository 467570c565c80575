"""Stop buttons: which session asked its run to end. A run asks once per round, so it ends cleanly and keeps its trace."""

from __future__ import annotations

import threading
from collections import OrderedDict

SESSIONS_KEPT = 4096


class Stops:
    """Remembers per session whether its current run should stop; old sessions are forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: OrderedDict[str, bool] = OrderedDict()

    def arm(self, session: str) -> None:
        """A run was asked for: earlier stops no longer count."""
        self._set(session, False)

    def stop(self, session: str) -> None:
        """The session's run, going on or still waiting in the queue, should end."""
        self._set(session, True)

    def asked(self, session: str) -> bool:
        return self._asked.get(session, False)

    def _set(self, session: str, value: bool) -> None:
        with self._lock:
            self._asked[session] = value
            self._asked.move_to_end(session)
            while len(self._asked) > SESSIONS_KEPT:
                self._asked.popitem(last=False)
