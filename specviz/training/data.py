"""Training records: the target's own answers as token ids, and how they are split and hashed."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import BadFile, BadInput, Missing


@dataclass(frozen=True)
class Record:
    """One prompt with the target's answer: `ids[answer_start:]` are the tokens the target wrote itself."""

    ids: tuple[int, ...]
    answer_start: int
    temperature: float = 0.0
    prompt_source: str = ""

    @property
    def answer(self) -> tuple[int, ...]:
        return self.ids[self.answer_start :]


def read_records(paths: Sequence[Path]) -> list[Record]:
    """Reads JSONL files (gzip when the name ends in .gz); raises Missing or BadFile with the file and line."""
    records = []
    for path in paths:
        if not path.exists():
            raise Missing(f"No training data at {path}. Write some with `distil`, or give --data another file.")
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            records += [_parse(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
    if not records:
        raise BadInput("The training data holds no records; expected JSON lines with ids and answer_start.")
    return records


def _parse(line: str, path: Path, number: int) -> Record:
    try:
        raw = json.loads(line)
        record = Record(
            ids=tuple(int(i) for i in raw["ids"]),
            answer_start=int(raw["answer_start"]),
            temperature=float(raw.get("temperature", 0.0)),
            prompt_source=str(raw.get("prompt_source", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(f"{path.name} line {number} is no training record ({error}); expected ids and answer_start.") from error
    if not 0 < record.answer_start <= len(record.ids):
        raise BadFile(f"{path.name} line {number}: answer_start {record.answer_start} does not fit {len(record.ids)} ids.")
    return record


def hash_records(records: Iterable[Record]) -> str:
    """Returns a sha256 (first 16 hex digits) over ids and answer starts, in order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps([record.ids, record.answer_start]).encode())
    return digest.hexdigest()[:16]


def held_out(record: Record, share: float) -> bool:
    """Says whether a record belongs to the held-out split; decided by its PROMPT, so that two answers to one prompt stay together."""
    digest = hashlib.sha256(json.dumps(record.ids[: record.answer_start]).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 < share


def draft_vocabulary(records: Iterable[Record], size: int, always: Sequence[int]) -> list[int]:
    """Returns the `size` most frequent answer tokens, sorted by id; `always` (the end tokens) are always among them."""
    counts = Counter(token for record in records for token in record.answer)
    ranked = sorted(counts, key=lambda token: (-counts[token], token))  # ties by id: the order of the records must not matter
    chosen = list(dict.fromkeys([*always, *ranked]))[:size]
    return sorted(chosen)
