"""Trace: the recording of a run. Records events as they pass, saves and loads them as JSON lines, replays them.

A file is plain JSON: loading one parses and checks it, and never executes anything. docs/trace-format.md describes it.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from specviz.errors import BadFile, BadInput
from specviz.events import SCHEMA, Drafted, Event, Finished, Prefilled, Started, Verified, from_json, named_ids, to_json

MAX_BYTES = 256 * 1024 * 1024  # of JSON text, after decompression
HEADER = "specviz_trace"


@dataclass(frozen=True)
class Round:
    """One draft-verify round of one row."""

    drafted: Drafted
    verified: Verified

    @cached_property
    def seconds(self) -> dict[str, float]:
        return dict(self.verified.seconds)


@dataclass
class Trace:
    """The events of one run, in order, with what follows from them: strings, rounds, the row's start and end."""

    events: list[Event] = field(default_factory=list)

    def record(self, run: Iterable[Event]) -> Iterator[Event]:
        """Passes the events of a run through and keeps them."""
        for event in run:
            self.events.append(event)
            yield event

    def replay(self) -> Iterator[Event]:
        """Yields the events again, as the live run did."""
        yield from self.events

    @property
    def strings(self) -> dict[int, str]:
        """Text of every token id that occurs."""
        table: dict[int, str] = {}
        for event in self.events:
            if not isinstance(event, Finished):
                table |= {int(token): text for token, text in event.strings.items()}
        return table

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(event.row for event in self.events if isinstance(event, Started))

    def started(self, row: int = 0) -> Started:
        """Returns how the row began; raises BadFile when the trace does not hold it."""
        found = next((e for e in self.events if isinstance(e, Started) and e.row == row), None)
        if found is None:
            raise BadFile(f"The trace holds no start of row {row}.")
        return found

    def prefilled(self, row: int = 0) -> Prefilled | None:
        return next((e for e in self.events if isinstance(e, Prefilled) and e.row == row), None)

    def finished(self, row: int = 0) -> Finished | None:
        """Returns how the row ended, None while it runs."""
        return next((e for e in reversed(self.events) if isinstance(e, Finished) and e.row == row), None)

    def rounds(self, row: int = 0) -> list[Round]:
        """Returns the complete rounds of a row, in order."""
        drafted = {e.round: e for e in self.events if isinstance(e, Drafted) and e.row == row}
        return [Round(drafted[e.round], e) for e in self.events if isinstance(e, Verified) and e.row == row and e.round in drafted]

    def emitted(self, row: int = 0) -> list[int]:
        """Returns the token ids emitted so far, the prefill's token first."""
        first = self.prefilled(row)
        ids = [] if first is None else [first.token]
        return ids + [token for e in self.events if isinstance(e, Verified) and e.row == row for token in e.emitted]

    def with_baseline(self, baseline: dict[str, Any], row: int = 0) -> Trace:
        """Returns the trace with the measured baseline of the row in its Finished event."""
        return Trace([replace(e, baseline=baseline) if isinstance(e, Finished) and e.row == row else e for e in self.events])

    def dumps(self) -> str:
        """Returns the trace as JSON lines: a header, the events, a closing line that shows that nothing is missing."""
        header = {HEADER: SCHEMA, "saved": datetime.now(UTC).isoformat(timespec="seconds")}
        lines = [header, *(to_json(event) for event in self.events), {"end": len(self.events)}]
        return "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)

    def save(self, path: str | Path) -> Path:
        """Writes .jsonl, or .jsonl.gz when the name ends so; a file appears whole or not at all. Raises BadInput where it cannot be written."""
        path = Path(path).resolve()  # a link keeps pointing at its file, which is what gets replaced
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is not a regular file, so it is not replaced by a trace. Choose another name.")
        data = self.dumps().encode()
        if path.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_bytes(data)
            return partial.replace(path)
        except OSError as problem:
            partial.unlink(missing_ok=True)
            raise BadInput(f"Could not write {path}: {problem.strerror or problem}. Choose a folder that exists and may be written to.") from None

    @classmethod
    def load(cls, path: str | Path, limit: int = MAX_BYTES) -> Trace:
        """Reads a trace. Raises BadFile for a damaged, truncated, oversized or newer file, with what is wrong."""
        path = Path(path)
        try:
            raw = path.read_bytes() if path.stat().st_size <= limit else None
        except OSError as problem:
            raise BadFile(f"Could not read {path.name}: {problem.strerror or problem}.") from None
        if raw is None:
            raise BadFile(f"{path.name} is larger than {limit // 2**20} MiB. Expected a trace saved by specviz.")
        return cls.loads(_unpack(raw, path.name, limit), path.name)

    @classmethod
    def loads(cls, text: str, name: str = "the trace") -> Trace:
        """Parses what `dumps` wrote; the same errors as `load`."""
        lines = [line for line in text.split("\n") if line.strip()]
        if not lines:
            raise BadFile(f"{name} is empty. Expected a trace saved by specviz.")
        header = _parse(lines[0], name, 1)
        version = header.get(HEADER) if isinstance(header, dict) else None
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise BadFile(f"{name} is not a specviz trace: its first line has no {HEADER!r}.")
        if version > SCHEMA:
            raise BadFile(f"{name} was written by a newer specviz (format {version}; this one reads up to {SCHEMA}). Update specviz.")
        end = _parse(lines[-1], name, len(lines))
        if not isinstance(end, dict) or end.get("end") != len(lines) - 2:
            raise BadFile(f"{name} is cut short: its closing line is missing or counts other events than the {max(0, len(lines) - 2)} that are here.")
        events = []
        for number, line in enumerate(lines[1:-1], 2):
            try:
                events.append(from_json(_parse(line, name, number)))
            except BadFile as problem:
                raise BadFile(f"{name}, line {number}: {problem}") from None
        trace = cls(events)
        trace._check(name)
        return trace

    def _check(self, name: str) -> None:
        """Raises BadFile when events do not fit each other."""
        if not self.rows:
            raise BadFile(f"{name} holds no run.")
        once: set[tuple[Any, ...]] = set()
        sizes: dict[tuple[int, int], int] = {}
        for event in self.events:
            if event.row not in self.rows:
                raise BadFile(f"{name} holds an event of row {event.row}, which never started.")
            key = (event.kind, event.row, getattr(event, "round", None))
            if key in once:
                raise BadFile(f"{name} holds the event {event.kind!r} of row {event.row} twice" + (f" for round {key[2]}." if key[2] is not None else "."))
            once.add(key)
            if isinstance(event, Drafted):
                sizes[event.row, event.round] = len(event.tokens)
            if isinstance(event, Verified) and event.verdicts and sizes.get((event.row, event.round)) != len(event.verdicts):
                raise BadFile(f"{name}, round {event.round}: verified nodes do not match the drafted tree.")
        lost = {token for event in self.events for token in named_ids(event)} - self.strings.keys()
        if lost:
            raise BadFile(f"{name} has no text for token ids {sorted(lost)[:5]}.")


def _unpack(raw: bytes, name: str, limit: int) -> str:
    try:
        if raw[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(raw)) as handle:
                raw = handle.read(limit + 1)
            if len(raw) > limit:
                raise BadFile(f"{name} unpacks to more than {limit // 2**20} MiB. Expected a trace saved by specviz.")
        return raw.decode("utf-8")
    except (OSError, EOFError, zlib.error) as problem:
        raise BadFile(f"{name} is a damaged gzip file: {problem}.") from None
    except UnicodeDecodeError:
        raise BadFile(f"{name} is not text. Expected JSON lines saved by specviz.") from None


def _parse(line: str, name: str, number: int) -> Any:
    try:
        record = json.loads(line, parse_constant=_refuse)
        if "\\ud" in line.lower():  # half of a surrogate pair is valid JSON, but no text that could be shown
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadFile(f"{name}, line {number} holds half a character (a lone surrogate).") from None
    except (ValueError, RecursionError) as problem:
        raise BadFile(f"{name}, line {number} is not valid JSON: {str(problem)[:120]}.") from None
    return record


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
