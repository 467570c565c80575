"""specviz.json, written beside a foreign checkpoint: what that format cannot hold, so that the way back is exact. Others ignore it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from specviz.checkpoints._files import read_json
from specviz.checkpoints.base import Head
from specviz.drafters.head_sizes import expected_shapes, read_sizes
from specviz.errors import BadFile
from specviz.sources import Fingerprint

NAME = "specviz.json"


def write_sidecar(head: Head, out: Path) -> None:
    record = {
        "method": head.method,
        "sizes": head.sizes.to_json(),
        "taps": list(head.taps),
        "vocabulary": head.vocabulary.tolist(),
        "target": None if head.fingerprint is None else head.fingerprint.to_json(),
        "base": head.base,
        "training": dict(head.training),
    }
    (out / NAME).write_text(json.dumps(record) + "\n")


def read_sidecar(folder: Path) -> dict[str, Any]:
    """Returns the record beside a foreign checkpoint, {} where there is none."""
    return read_json(folder / NAME, needed=False)


def sidecar_fingerprint(record: Mapping[str, Any]) -> Fingerprint | None:
    target = record.get("target")
    return Fingerprint.from_json(target) if isinstance(target, dict) and isinstance(target.get("weights"), str) else None


def restore(head: Head, folder: Path) -> Head:
    """Returns the head with what the record beside it adds: draft vocabulary, fingerprint, training, and rows shared with the target.

    Raises BadFile when the record is of another head than the weights.
    """
    record = read_sidecar(folder)
    if not record:
        return head
    try:
        if record["method"] != head.method:
            raise ValueError(f"method {record['method']!r}")
        sizes = read_sizes(head.method, record["sizes"])
        vocabulary = torch.tensor(record["vocabulary"], dtype=torch.long)
        taps = tuple(int(tap) for tap in record["taps"])
        names = expected_shapes(head.method, sizes)
        weights = {name: head.weights[name] for name in names}  # rows that the target has are not kept
        if any(tuple(weights[name].shape) != shape for name, shape in names.items()) or len(vocabulary) != sizes.draft_vocab:
            raise ValueError("sizes")
    except (KeyError, TypeError, ValueError) as problem:
        raise BadFile(f"{NAME} in {folder} is not about the weights beside it ({problem}). Delete it if the weights were changed on purpose.") from problem
    return replace(
        head, sizes=sizes, weights=weights, vocabulary=vocabulary, taps=taps, base=record.get("base") or head.base,
        fingerprint=sidecar_fingerprint(record), training=record.get("training") or {},
    )  # fmt: skip
