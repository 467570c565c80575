"""Training records: the target's own answers as token ids, and how they are split and hashed."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.checks import is_count, is_number, told
from specviz.errors import BadFile, BadInput, Missing

MOST = 2**31 - 1  # no vocabulary is larger


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
        if not path.is_file():
            raise Missing(f"No training data at {path}: expected a file. Write one with `distil`, or give --data another.")
        opener = gzip.open if path.suffix == ".gz" else open
        try:
            with opener(path, "rt", encoding="utf-8") as lines:
                records += [_parse(line, f"{path.name} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
        except UnicodeDecodeError:
            raise BadFile(f"{path.name} is not text in UTF-8; expected JSON lines with ids and answer_start.") from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
            raise BadFile(f"{path.name} is truncated or no gzip file ({problem}). Write it again, or rename it if it is plain text.") from None
    if not records:
        raise BadInput("The training data holds no records; expected JSON lines with ids and answer_start.")
    return records


def _parse(line: str, where: str) -> Record:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise BadFile(f"{where} is no JSON ({str(problem)[:100]}); expected an object with ids and answer_start.") from None
    return to_record(raw, where)


def to_record(raw: Any, where: str) -> Record:
    """Returns the record of a JSON object; raises BadFile naming `where` it stood and the field that is not what it should be."""
    if not isinstance(raw, Mapping):
        raise BadFile(f"{where} is no training record but {told(raw)}; expected an object with ids and answer_start.")
    ids, start = raw.get("ids"), raw.get("answer_start", 0)
    if not isinstance(ids, list) or not ids:
        raise BadFile(f"{where}: ids is {told(ids)}, expected a list of token ids, whole numbers from 0.")
    if set(map(type, ids)) != {int} or not 0 <= min(ids) <= max(ids) <= MOST:
        odd = next(one for one in ids if not is_count(one) or one > MOST)
        raise BadFile(f"{where}: ids holds {told(odd)}, expected token ids, whole numbers from 0.")
    if not isinstance(start, int) or not is_count(start) or not 0 < start <= len(ids):
        raise BadFile(f"{where}: answer_start is {told(start)}, which does not fit {len(ids)} ids; expected a whole number from 1 to {len(ids)}.")
    temperature, source = raw.get("temperature", 0.0), raw.get("prompt_source", "")
    if not is_number(temperature) or temperature < 0:
        raise BadFile(f"{where}: temperature is {told(temperature)}, expected a number from 0.")
    if not isinstance(source, str):
        raise BadFile(f"{where}: prompt_source is {told(source)}, expected text.")
    return Record(tuple(ids), start, float(temperature), source)


def check_tokens(records: Iterable[Record], vocab_size: int) -> None:
    """Raises BadInput for records with a token that a target of this vocabulary does not have."""
    highest = max((max(record.ids) for record in records), default=0)
    if highest >= vocab_size:
        raise BadInput(f"The training data names token {highest}, but the target has {vocab_size}: it was written by another model. Give this target's own.")


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
