"""An opened checkpoint: its config and its tensors by name, read only when asked for, and never by running code from the file."""

from __future__ import annotations

import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specviz.errors import BadFile, Missing

CONFIG = "config.json"
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLES = (
    "medusa_lm_head.safetensors", "medusa_lm_head.pt", "hydra_lm_head.safetensors", "hydra_lm_head.pt", "model.safetensors", "pytorch_model.bin",
)  # fmt: skip
SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
MAX_JSON = 16 << 20  # bytes of a config or an index
MAX_TENSORS = 100_000
MAX_TENSOR_BYTES = 8 << 30
MAX_PLAIN_PICKLE = 4 << 30  # an old .bin cannot be mapped into memory, so all of it is read at once


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies and what it is, known without reading it."""

    shape: tuple[int, ...]
    dtype: str
    file: Path


class Files:
    """The config and the tensors of one checkpoint folder (or of one weights file with the config beside it)."""

    def __init__(self, folder: Path, config: Mapping[str, Any], weights: tuple[Path, ...]) -> None:
        self.folder, self.config, self.weights = folder, config, weights
        self.entries: dict[str, Entry] = {}
        self._loaded: dict[Path, Mapping[str, Tensor]] = {}
        for file in weights:
            self.entries |= self._index(file)
        if len(self.entries) > MAX_TENSORS:
            raise BadFile(f"{folder} holds {len(self.entries)} tensors, more than {MAX_TENSORS}. Expected the checkpoint of one head or model.")

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a tensor's shape; () for one that is not there."""
        return self.entries[name].shape if name in self.entries else ()

    def tensor(self, name: str) -> Tensor:
        """Reads one tensor in its own dtype. Raises BadFile when it is missing or too large."""
        if name not in self.entries:
            raise BadFile(f"{self.folder} has no tensor {name!r}. The checkpoint is incomplete: fetch it again.")
        entry = self.entries[name]
        if entry.file in self._loaded:
            return self._loaded[entry.file][name]
        with safe_open(entry.file, "pt") as handle:
            part = handle.get_slice(name)
            if _bytes(entry) > MAX_TENSOR_BYTES:
                raise BadFile(f"{name} in {entry.file.name} has shape {entry.shape}, more than {MAX_TENSOR_BYTES >> 30} GiB. No draft head is that large.")
            return part[:] if entry.shape else handle.get_tensor(name)

    def _index(self, file: Path) -> dict[str, Entry]:
        if file.suffix == ".safetensors":
            return _safetensors_index(file)
        self._loaded[file] = load_pickle(file)
        return {name: Entry(tuple(t.shape), str(t.dtype).removeprefix("torch."), file) for name, t in self._loaded[file].items()}


def open_files(path: Path) -> Files:
    """Opens a folder, or one weights file; raises Missing when nothing is there, BadFile for damaged, truncated or unsafe files."""
    if path.is_file():
        return Files(path.parent, read_json(path.parent / CONFIG, needed=False), (path,))
    if not path.is_dir():
        raise Missing(f"There is no {path}. Expected the folder of a checkpoint, or its weights file.")
    return Files(path, read_json(path / CONFIG, needed=False), _weights(path))


def read_json(file: Path, needed: bool = True) -> dict[str, Any]:
    """Returns a JSON object from a file, {} if it is absent and not needed."""
    if not file.exists():
        if needed:
            raise Missing(f"There is no {file.name} in {file.parent}.")
        return {}
    if file.stat().st_size > MAX_JSON:
        raise BadFile(f"{file} has {file.stat().st_size} bytes, more than {MAX_JSON}. It is not a {file.name}.")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{file} is not readable JSON ({str(problem)[:100]}). Fetch it again.") from None
    if not isinstance(record, dict):
        raise BadFile(f"{file} holds a {type(record).__name__}, expected an object.")
    return record


def _weights(folder: Path) -> tuple[Path, ...]:
    """Returns the weights files of a folder: a head's own file first, then shards named by an index, then a single file."""
    for name in SINGLES[:4]:
        if (folder / name).is_file():
            return (folder / name,)
    for name in INDEXES:
        if (folder / name).is_file():
            return _shards(folder, name)
    for name in SINGLES[4:]:
        if (folder / name).is_file():
            return (folder / name,)
    found = sorted(f for f in folder.iterdir() if f.is_file() and f.suffix in SUFFIXES)
    if len(found) == 1:
        return (found[0],)
    what = "several weights files and no index" if found else "no weights"
    raise Missing(f"{folder} holds {what}. Expected {', '.join(SINGLES[4:])}, an index with its shards, or a file like medusa_lm_head.pt.")


def _shards(folder: Path, index: str) -> tuple[Path, ...]:
    table = read_json(folder / index).get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(v, str) for v in table.values()):
        raise BadFile(f"{index} in {folder} has no weight_map. Fetch it again.")
    names = sorted(set(table.values()))
    for name in names:
        if Path(name).name != name or Path(name).suffix not in SUFFIXES:
            raise BadFile(f"{index} names {name!r}, which is not a weights file of this folder. It is refused.")
        if not (folder / name).is_file():
            raise BadFile(f"{index} names the shard {name}, which is not in {folder}. The download is incomplete: fetch it again.")
    return tuple(folder / name for name in names)


def _safetensors_index(file: Path) -> dict[str, Entry]:
    try:
        with safe_open(file, "pt") as handle:
            found = {}
            for name in handle.keys():
                part = handle.get_slice(name)
                found[name] = Entry(tuple(part.get_shape()), str(part.get_dtype()), file)
            return found
    except (SafetensorError, OSError) as problem:
        raise BadFile(f"{file.name} is truncated or damaged ({problem}). Fetch it again and compare its size.") from problem


def load_pickle(file: Path) -> Mapping[str, Tensor]:
    """Reads a .bin or .pt as plain tensors (`weights_only`), mapped into memory; raises BadFile for anything else in it."""
    mapped = _is_zip(file)
    with file.open("rb") as handle:
        start = handle.read(2)
    if not mapped and start == b"PK":
        raise BadFile(f"{file.name} is truncated: its end is missing. Fetch it again and compare its size.")
    if not mapped and file.stat().st_size > MAX_PLAIN_PICKLE:
        raise BadFile(f"{file.name} is an old-style pickle of {file.stat().st_size >> 30} GiB, more than is read at once. Convert it to safetensors first.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch remarks on odd pickle protocols; what matters is whether the file reads
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=True if mapped else None)
    except pickle.UnpicklingError as problem:
        if "truncated" in str(problem):
            raise BadFile(f"{file.name} is truncated. Fetch it again and compare its size.") from None
        raise BadFile(
            f"{file.name} holds more than tensors, and unpickling it would run code: refused. Ask its author for safetensors, or save only the state dict."
        ) from None
    except (
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        OSError,
        IndexError,
        TypeError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        struct.error,
        zipfile.BadZipFile,
    ) as problem:
        raise BadFile(
            f"{file.name} is truncated or damaged ({(str(problem).strip() or type(problem).__name__).splitlines()[0][:100]}). Fetch it again."
        ) from None
    if not isinstance(found, dict) or not found or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in found.items()):
        raise BadFile(f"{file.name} is not a state dict (names to tensors). Save `module.state_dict()` alone.")
    return found


def _is_zip(file: Path) -> bool:
    try:
        return zipfile.is_zipfile(file)
    except (zipfile.BadZipFile, struct.error, ValueError, OverflowError):  # its directory is damaged, so it is one: torch says the rest
        return True


def _bytes(entry: Entry) -> int:
    count = 1
    for size in entry.shape:
        count *= size
    return count * (8 if "64" in entry.dtype else 4)
