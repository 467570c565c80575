"""Fetch the default target: download, check and convert it once."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

from specviz.commands.base import consoles


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="fetch and convert again even if the weights are there")
    parser.add_argument("--gguf", metavar="FILE", type=Path, help="convert this copy of the default target's GGUF file instead of downloading it")


def run(args: argparse.Namespace) -> int:
    """Shows a progress bar on stderr; prints the folder."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from specviz.sources import fetch_default, install_default

    os.environ.setdefault("TQDM_DISABLE", "1")  # one bar is enough; read when transformers is imported, later
    out, log = consoles()
    with Progress(TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn(), console=log) as bar:
        show = partial(_show, bar, bar.add_task("fetching", total=1.0))
        folder = install_default(args.gguf, show) if args.gguf else fetch_default(show, args.force)
    out.print(str(folder), markup=False, soft_wrap=True)
    return 0


def _show(bar: Any, task: Any, share: float, text: str) -> None:
    bar.update(task, completed=share, description=text)
