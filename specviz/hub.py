"""Targets named by a hub id: their files in the hub's own cache."""

from __future__ import annotations

from pathlib import Path

from specviz.errors import Missing

WANTED = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
UNWANTED = ["*/*", "consolidated*"]  # other forms of the same weights


def download(name: str) -> Path:
    """Returns the folder of a hub id's files, fetched where they are not cached. Raises Missing with the reason."""
    try:
        return _snapshot(name, local_files_only=False)
    except (OSError, ValueError) as problem:
        reason = "".join(str(problem).strip().splitlines()[:1])
        raise Missing(f"Could not download {name!r} from the hub: {reason}. Check the name and the network, or give a local folder.") from problem


def cached(name: str) -> Path | None:
    """Returns the folder where the files of a hub id are cached, None where they are not."""
    try:
        return _snapshot(name, local_files_only=True)
    except (OSError, ValueError):
        return None


def _snapshot(name: str, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=UNWANTED, local_files_only=local_files_only))
