"""A fixture that runs the command line in this process on a saved tiny model; import `run_fixture`, then take `run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from specviz import cli

Cli = Callable[..., SimpleNamespace]


@pytest.fixture(name="run")
def run_fixture(capsys: pytest.CaptureFixture[str], tiny_folder: Path) -> Cli:
    """Runs a verb; decode and bench get the tiny target. Returns status, out and err."""

    def call(verb: str, *words: str | Path) -> SimpleNamespace:
        target = ["--target", str(tiny_folder)] if verb in ("decode", "bench") else []
        status = cli.main([verb, *target, *map(str, words)])
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return call
