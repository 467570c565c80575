"""Made-up measurements for tests: a machine whose costs are known by hand, and a head with a report beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from head_reports import make_report

from specviz.analysis.head_report import NAME, Greedy, ReportTarget
from specviz.analysis.profile import PHASES, DrafterCosts, Profile, Rounds, Spread
from specviz.target import Target

SETTING: dict[str, Any] = {
    "target": {"name": "tiny", "fingerprint": {"weights": "aaaa"}}, "dtype": "float32",
    "device": {"type": "cpu", "name": "CPU, 2 threads", "threads": 2, "processor": "a processor", "graphs": "off"},
    "versions": {"specviz": "0", "torch": "2", "transformers": "5", "python": "3"},
}  # fmt: skip


def spread(value: float) -> Spread:
    return Spread(value, value, value, 3)


def rounds(draft: float, accept: float = 1.0, nodes: int = 8, steps: float = 3.0) -> Rounds:
    ms = dict.fromkeys(PHASES, spread(0.0)) | {"draft": spread(draft), "verify": spread(50.0), "accept": spread(accept)}
    return Rounds(ms, nodes, steps, 9.0, 4)


def costs(draft: Mapping[int, float], name: str = "eagle", checkpoint: str | None = "c0ffee", sampled: bool = False) -> DrafterCosts:
    """Draft milliseconds by nodes; rule 1 ms everywhere."""
    return DrafterCosts(name, checkpoint, sampled, 1000, {nodes: rounds(ms, nodes=nodes) for nodes, ms in draft.items()})


def profile(forward: Mapping[int, float], *drafters: DrafterCosts, **changed: Any) -> Profile:
    """Forward milliseconds by nodes."""
    parts = {"setting": SETTING, "forward": {nodes: spread(ms) for nodes, ms in forward.items()}, "cached": 64, "made": "2026-01-02T03:04", "quick": True}
    return Profile(**{**parts, "drafters": {one.key: one for one in drafters}, **changed})  # type: ignore[arg-type]


def reported_head(folder: Path, head: Path, target: Target, taus: Mapping[int, float], **changed: Any) -> Path:
    """Copies a head to `folder` with a report that gives these taus at temperature 0; returns the folder."""
    shutil.copytree(head, folder)
    grown = tuple(Greedy("dynamic", f"eagle@dynamic:nodes={n}", n, tau, 10, (10,), (5,), {}) for n, tau in taus.items())
    weights = sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:16]
    parts = {"target": ReportTarget(target.name, target.fingerprint.weights), "checkpoint": weights, "greedy": grown, "sampled": ()}
    (folder / NAME).write_text(json.dumps(make_report(**{**parts, **changed}).to_json()))
    return folder
