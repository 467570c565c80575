"""Captures the target's hidden states once, so that a head can be trained many times without running the target again."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specviz.checks import is_count
from specviz.errors import BadFile, BadInput, Missing
from specviz.packed import pack_linears
from specviz.say import Say
from specviz.sources import DEFAULT_TARGET, Fingerprint, hash_folder, locate
from specviz.taps import tapped
from specviz.target import pick_device
from specviz.training.data import Record, check_tokens, hash_records, read_records, to_record

MOST_SHARDS = 10_000  # shards are named by four digits
LIMIT = 65504.0  # largest fp16 number; the residual stream of the first token can exceed it


@dataclass(frozen=True)
class Capture:
    """A finished or growing folder of features; `taps` as in Drafter.taps (tap L, the number of layers, is the final-norm output)."""

    folder: Path
    fingerprint: Fingerprint
    data: str
    taps: tuple[int, ...]
    width: int
    shards: int

    def done(self) -> list[int]:
        return [n for n in range(self.shards) if (self.folder / f"{n:04d}.json").exists()]

    def records(self, shard: int) -> list[Record]:
        """Returns the records of a shard, in the order of its rows."""
        file = self.folder / f"{shard:04d}.json"
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(found, list):
                raise ValueError(f"it holds a {type(found).__name__}, expected a list of records")
        except (OSError, ValueError, RecursionError) as problem:
            raise BadFile(f"{file} is damaged ({str(problem)[:100]}). Delete it and capture again; the other shards are kept.") from None
        return [to_record(raw, f"{file}, record {number}") for number, raw in enumerate(found, 1)]

    def rows(self, shard: int, tap: int) -> np.ndarray:
        """Returns a read-only memory map `[tokens of the shard, width]` fp16; records follow each other without padding."""
        if tap not in self.taps:
            raise BadInput(f"The features in {self.folder} lack tap {tap}; they have {list(self.taps)}. Capture again with the taps that this head reads.")
        file, marker = self.folder / f"{shard:04d}-tap{tap}.npy", f"{shard:04d}.json"
        try:
            rows: np.ndarray = np.load(file, mmap_mode="r")
        except (OSError, ValueError, EOFError) as problem:
            raise BadFile(f"{file} is missing or damaged ({str(problem)[:100]}). Delete {marker} beside it and capture again.") from None
        if rows.ndim != 2 or rows.shape[1] != self.width or rows.dtype != np.float16:
            raise BadFile(
                f"{file} holds {rows.dtype} of shape {list(rows.shape)}, expected rows of {self.width} in float16. Delete {marker} and capture again."
            )
        return rows


def default_taps(layers: int) -> tuple[int, ...]:
    """Returns EAGLE-3's three taps (states entering layers 2, L//2, L-3; those that a small model has) and the final-norm output."""
    return tuple(sorted({2, layers // 2, layers - 3} & set(range(layers)) | {layers}))


def open_capture(folder: Path) -> Capture:
    """Opens a folder that `capture` wrote; raises Missing or BadFile."""
    meta = folder / "capture.json"
    if not meta.exists():
        raise Missing(f"No captured features in {folder}. Run the capture step first.")
    try:
        raw = json.loads(meta.read_text(encoding="utf-8"))
        found = Capture(folder, Fingerprint.from_json(raw["fingerprint"]), raw["data"], tuple(raw["taps"]), raw["width"], raw["shards"])
        fit = found.taps and all(map(is_count, (*found.taps, found.width, found.shards))) and found.shards <= MOST_SHARDS and isinstance(found.data, str)
        if not fit or not isinstance(found.fingerprint.weights, str):
            raise ValueError("data, taps, width, shards or fingerprint is not what a capture writes there")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadFile(f"{meta} is damaged ({str(error)[:100]}). Delete the folder and capture again.") from error
    return found


def open_captures(folders: Path | Sequence[Path], target: Path) -> list[Capture]:
    """Opens the features that count as one data set; raises BadInput for those of other weights than the target's, or a folder given twice."""
    found = [open_capture(folder) for folder in ([folders] if isinstance(folders, Path) else folders)]
    for one in found:
        check_origin(one, target)
    places = [one.folder.resolve() for one in found]
    if doubled := next((place for place in places if places.count(place) > 1), None):
        raise BadInput(f"The features in {doubled} are given twice, and would count twice. Give every folder once.")
    return found


def check_origin(found: Capture, target: Path) -> None:
    """Raises BadInput for features of other weights than those in the folder `target`."""
    weights = hash_folder(target)
    if weights != found.fingerprint.weights:
        raise BadInput(f"The features in {found.folder} were captured from {found.fingerprint.weights}, but {str(target)!r} is {weights}. Capture again.")


def capture(
    data: Sequence[Path],
    out: Path,
    *,
    target: str = DEFAULT_TARGET,
    taps: Sequence[int] | None = None,
    shards: int = 16,
    tokens_per_batch: int = 4096,
    seed: int = 0,
    say: Say = print,
) -> Capture:
    """Runs the target over every record and stores the tapped states as fp16; shards that are complete are skipped.

    Works in a folder below `out` named by target fingerprint and data hash. The target runs in fp32, the exact serving
    model; only its decoder is called, as no logits are needed.
    """
    records = read_records(data)
    if not 1 <= shards <= min(len(records), MOST_SHARDS):
        raise BadInput(f"{len(records)} records cannot fill {shards} shards. Expected 1 to {min(len(records), MOST_SHARDS)}.")
    random.Random(seed).shuffle(records)  # every shard is a fair sample, so training can start on the first ones
    found = _begin(records, out, locate(target), taps, shards)  # a folder that was begun with another number of shards keeps it
    tokens = sum(len(r.ids) for r in records)
    say(f"{tokens} tokens x {len(found.taps)} taps x {found.width} x 2 bytes = {tokens * len(found.taps) * found.width * 2 / 1e9:.2f} GB in {found.folder}")
    missing = sorted(set(range(found.shards)) - set(found.done()))
    if missing:
        decoder = _load_decoder(locate(target))
        for n in missing:
            _capture_shard(decoder, found, n, records[n :: found.shards], tokens_per_batch)
            say(f"shard {n + 1} of {found.shards} done")
    return found


def _load_decoder(folder: str) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().to(pick_device()[0])
    pack_linears(model)  # as in serving; where it cannot be done the stock layers give the same numbers
    return model.get_decoder()


def _begin(records: list[Record], out: Path, target: str, taps: Sequence[int] | None, shards: int) -> Capture:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(target)
    check_tokens(records, config.get_text_config(decoder=True).vocab_size)
    fingerprint = Fingerprint(weights=hash_folder(Path(target)) or "unknown")
    data = hash_records(records)
    folder = out / f"{fingerprint.weights}-{data}"
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "capture.json").exists():
        return open_capture(folder)
    chosen = tuple(taps) if taps else default_taps(config.num_hidden_layers)
    found = Capture(folder, fingerprint, data, chosen, config.hidden_size, shards)
    record = asdict(found) | {"fingerprint": fingerprint.to_json(), "target": Path(target).name}
    del record["folder"]
    (folder / "capture.json").write_text(json.dumps(record, indent=1))
    return found


def batches(records: Sequence[Record], tokens: int) -> Iterator[list[Record]]:
    """Yields runs of similar length whose padded size stays within `tokens` (one longer record travels alone)."""
    batch: list[Record] = []
    for record in sorted(records, key=lambda r: len(r.ids)):
        if batch and len(record.ids) * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch


def _capture_shard(decoder: Any, found: Capture, shard: int, records: list[Record], tokens: int) -> None:
    ordered = [record for batch in batches(records, tokens) for record in batch]
    total = sum(len(r.ids) for r in ordered)
    parts = {tap: found.folder / f"{shard:04d}-tap{tap}.npy" for tap in found.taps}
    stores = {tap: np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(total, found.width)) for tap, path in parts.items()}
    row = 0
    for batch in batches(records, tokens):
        states = tapped_states(decoder, [record.ids for record in batch], found.taps)
        for b, record in enumerate(batch):
            for tap, store in stores.items():
                store[row : row + len(record.ids)] = states[tap][b, : len(record.ids)].numpy()
            row += len(record.ids)
    for store in stores.values():
        store.flush()
    scratch = found.folder / f"{shard:04d}.json.part"  # the list of records is written last: it marks the shard as complete
    scratch.write_text(json.dumps([asdict(record) for record in ordered]))
    os.replace(scratch, found.folder / f"{shard:04d}.json")


@torch.inference_mode()
def tapped_states(decoder: Any, ids: Sequence[Sequence[int]], taps: Sequence[int]) -> dict[int, torch.Tensor]:
    """Returns {tap: [B, longest, width] fp16} on the host. Rows are padded on the right, which a causal model never looks at."""
    longest = max(len(row) for row in ids)
    padded = torch.tensor([list(row) + [0] * (longest - len(row)) for row in ids], device=next(decoder.parameters()).device)
    with tapped(decoder, taps, "the target") as seen:
        decoder(input_ids=padded, use_cache=False)
    return {tap: seen[tap].clamp(-LIMIT, LIMIT).half().cpu() for tap in taps}
