"""Throw-away environments: a peer that this project does not depend on gets a folder of its own, which may be deleted at any time.

The environment sees the packages of this one (so torch and transformers are the same), and holds the peer's package on top.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from specviz.peers._link import ROOT
from specviz.peers.base import PeerFailed


def environment(folder: Path, requires: Sequence[str]) -> Path:
    """Returns the interpreter of an environment with `requires` (each name==version), made when it is not there yet.

    Raises PeerFailed with pip's own last words.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], "could not make an environment")
    place = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], "the environment does not run"))
    (place / "parent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    if missing := [name for name in requires if name not in installed(place)]:
        constraints = ROOT / "constraints.txt"
        pinned = ["-c", str(constraints)] if constraints.exists() else []
        _run([str(python), "-m", "pip", "install", "--quiet", *pinned, *missing], f"could not install {' '.join(missing)}")
    return python


def installed(place: Path) -> set[str]:
    """Returns name==version of every distribution in a folder."""
    return {f"{found.metadata['Name']}=={found.version}" for found in distributions(path=[str(place)])}


def _run(command: Sequence[str], failed: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = ([line for line in done.stderr.strip().splitlines() if line.strip()] or ["no reason given"])[-1]
        raise PeerFailed(f"{failed}: {reason.strip()[:300]}")
    return done.stdout.strip()
