"""Profiles on disk: one JSON file per target, device, dtype, thread count and versions, in the cache folder."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from specviz.analysis.profile import PHASES, DrafterCosts, Profile, Rounds, Spread
from specviz.checks import is_number
from specviz.errors import BadFile, BadInput
from specviz.settings import cache_dir

FORMAT = "specviz-profile-1"
FOLDER = "profiles"
MACHINE = ("cores", "load_1m", "bandwidth_bytes_per_s", "peak_flops_per_s")
MOST_BYTES = 4 << 20


def setting_of(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the part of a trace's meta that a profile belongs to; None when the trace does not tell it."""
    parts = {key: meta.get(key) for key in ("target", "device", "dtype", "versions")}
    named = all(isinstance(parts[key], Mapping) for key in ("target", "device", "versions")) and isinstance(parts["dtype"], str)
    return parts if named else None


def profile_path(setting: Mapping[str, Any]) -> Path:
    """Returns where the profile of this target, device, dtype, thread count and these versions lies."""
    target, device, versions = setting["target"], setting["device"], setting["versions"]
    told = [
        target.get("fingerprint"), *(device.get(name) for name in ("type", "name", "threads", "processor", "graphs")),
        setting["dtype"], *(versions.get(name) for name in ("specviz", "torch", "transformers")),
    ]  # fmt: skip
    digest = sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(target.get("name", "")))[:60].strip(".-") or "target"
    return cache_dir() / FOLDER / f"{name}-{digest}.json"


def read_profile(setting: Mapping[str, Any]) -> Profile | None:
    """Returns what was measured for this setting, None when nothing was. Raises BadFile when the file is damaged."""
    try:
        return _read(profile_path(setting))
    except FileNotFoundError:
        return None


def _read(path: Path) -> Profile:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadFile(f"{path} is larger than {MOST_BYTES >> 20} MiB. Expected a profile.")
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise BadFile(f"{path} is a damaged profile ({type(problem).__name__}: {str(problem)[:80]}).") from None


def remembered_profiles() -> list[Profile]:
    """Returns every profile in the cache folder that can be read, the newest first."""
    found = []
    for path in sorted((cache_dir() / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            found.append(_read(path))
        except (BadFile, FileNotFoundError):
            continue
    return found


def write_profile(profile: Profile) -> Path:
    """Writes the profile in one move and returns its file. Raises BadInput where it cannot be written."""
    path = profile_path(profile.setting)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False) as scratch:
            json.dump(to_json(profile), scratch, indent=1, allow_nan=False)
        os.replace(scratch.name, path)
    except OSError as problem:
        raise BadInput(f"Could not write {path}: {problem.strerror or problem}. Set SPECVIZ_CACHE to a folder that may be written to.") from None
    return path


def to_json(profile: Profile) -> dict[str, Any]:
    """Returns the record that the file holds and `profile --json` prints."""
    return {
        "format": FORMAT, "made": profile.made, "quick": profile.quick, "cached_tokens": profile.cached,
        "machine": {**profile.setting["device"], **profile.machine, "versions": dict(profile.setting["versions"])},
        "target": dict(profile.setting["target"]), "dtype": profile.setting["dtype"],
        "forward_ms": {str(n): s.median for n, s in profile.forward.items()},
        "forward_spread": {str(n): _spread_json(s) for n, s in profile.forward.items()},
        "batch_ms": {str(b): {str(n): s.median for n, s in row.items()} for b, row in profile.batch.items()},
        "batch_spread": {str(b): {str(n): _spread_json(s) for n, s in row.items()} for b, row in profile.batch.items()},
        "drafters": {key: _costs_json(costs) for key, costs in profile.drafters.items()},
        "floor": dict(profile.floor), "setting": dict(profile.setting),
    }  # fmt: skip


def from_json(record: Any) -> Profile:
    """Returns the profile of a record. Raises ValueError, KeyError or TypeError for one that is not whole."""
    if record["format"] != FORMAT:
        raise ValueError(f"format {record['format']!r}, expected {FORMAT!r}")
    setting = setting_of(record["setting"])
    forward = _spreads(record["forward_ms"], record["forward_spread"])
    if setting is None or not forward:
        raise ValueError("it does not say what was measured")
    batch = {int(b): _spreads(row, record["batch_spread"][b]) for b, row in record["batch_ms"].items()}
    machine = {name: _number(record["machine"][name]) for name in MACHINE if name in record["machine"]}
    drafters = {str(key): _costs(costs) for key, costs in record["drafters"].items()}
    return Profile(setting, forward, int(record["cached_tokens"]), str(record["made"]), bool(record["quick"]), machine, batch, drafters, dict(record["floor"]))


def _number(value: Any) -> float:
    if not is_number(value) or value < 0:
        raise ValueError(f"{value!r} is no measurement")
    return float(value)


def _spread_json(spread: Spread) -> dict[str, Any]:
    return {"low": spread.low, "high": spread.high, "count": spread.count}


def _spreads(medians: Mapping[str, Any], spreads: Mapping[str, Any]) -> dict[int, Spread]:
    return {int(n): _spread(value, spreads[n]) for n, value in medians.items()}


def _spread(value: Any, told: Mapping[str, Any]) -> Spread:
    return Spread(_number(value), _number(told["low"]), _number(told["high"]), int(told["count"]))


def _costs_json(costs: DrafterCosts) -> dict[str, Any]:
    rounds = {
        str(nodes): {
            **{f"{name}_ms": spread.median for name, spread in one.ms.items()}, "spread": {name: _spread_json(spread) for name, spread in one.ms.items()},
            "nodes": one.nodes, "steps": one.steps, "drafted": one.drafted, "rounds": one.count,
        }
        for nodes, one in costs.rounds.items()
    }  # fmt: skip
    return {
        "name": costs.name, "checkpoint": costs.checkpoint, "sampled": costs.sampled, "weights": costs.weights,
        "step_ms": costs.step_ms, "budgets": rounds,
    }  # fmt: skip


def _costs(record: Mapping[str, Any]) -> DrafterCosts:
    rounds = {}
    for nodes, one in record["budgets"].items():
        ms = {name: _spread(one[f"{name}_ms"], one["spread"][name]) for name in PHASES}
        rounds[int(nodes)] = Rounds(ms, _number(one["nodes"]), _number(one["steps"]), _number(one["drafted"]), int(one["rounds"]))
    return DrafterCosts(str(record["name"]), record["checkpoint"], bool(record["sampled"]), int(record["weights"]), rounds)
