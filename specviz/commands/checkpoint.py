"""Check a head checkpoint, convert it between formats, or export it to a serving engine.

  inspect PATH                      the format, the sizes, and what is wrong, one sentence each
  convert PATH --to FORMAT OUT      write it in another format (`native` is this program's own)
  export PATH --to vllm OUT         write it as vLLM loads it, and print the command that serves it

The target (--target) is compared with the checkpoint, and gives what a format needs of it; for a head of this program below
its target's folder, that one is taken.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.commands import base

if TYPE_CHECKING:
    from specviz.checkpoints._target import TargetFiles
    from specviz.checkpoints.doctor import Diagnosis

NOT_USABLE = 1


def configure(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(title="what to do", metavar="STEP", required=True)
    inspect = steps.add_parser("inspect", help="the format, the sizes, and what is wrong with it")
    inspect.add_argument("--json", action="store_true", help="print one JSON object")
    convert = steps.add_parser("convert", help="write it in another format")
    convert.add_argument("--to", required=True, metavar="FORMAT", help="native, medusa_v1, medusa_shared, medusa_vllm, hydra, eagle, eagle3 or speculators")
    export = steps.add_parser("export", help="write it for a serving engine")
    export.add_argument("--to", choices=["vllm"], default="vllm", help="the engine")
    export.add_argument("--draft-length", type=base.positive, metavar="N", help="tokens drafted per round (default: as measured in training)")
    for step, action in ((inspect, _inspect), (convert, _convert), (export, _export)):
        step.add_argument("path", metavar="PATH", type=Path, help="folder of the checkpoint, or its weights file")
        if action is not _inspect:
            step.add_argument("out", metavar="OUT", type=Path, help="new folder to write")
        step.add_argument("--target", metavar="NAME", help="the target it belongs to: a name under models/ or a folder")
        step.set_defaults(step=action)


def run(args: argparse.Namespace) -> int:
    """Runs the step; `inspect` ends with 1 when the checkpoint cannot be used."""
    return int(args.step(args))


def _inspect(args: argparse.Namespace) -> int:
    from specviz.checkpoints.doctor import inspect

    found = inspect(args.path, _target(args))
    if args.json:
        sys.stdout.write(base.dump(found.to_json()))
    else:
        _print(found)
    return 0 if found.usable else NOT_USABLE


def _convert(args: argparse.Namespace) -> int:
    from specviz.checkpoints.conversion import convert

    out, log = base.consoles()
    done = convert(args.path, args.to, args.out, _target(args))
    for note in done.notes:
        log.print(note, markup=False, style="yellow")
    out.print(str(done.folder), markup=False, soft_wrap=True)
    return 0


def _export(args: argparse.Namespace) -> int:
    from specviz.checkpoints.conversion import export_vllm
    from specviz.errors import BadInput

    target = _target(args)
    if target is None:
        raise BadInput("Which target does the head serve? Name it: --target NAME.")
    out, _ = base.consoles()
    out.print(export_vllm(args.path, args.out, target, args.draft_length).text(), markup=False, soft_wrap=True)
    return 0


def _target(args: argparse.Namespace) -> TargetFiles | None:
    """Returns the named target, or the one that a head of ours lies below."""
    from specviz.checkpoints._target import open_target
    from specviz.sources import user_path

    if args.target:
        return open_target(args.target)
    above = user_path(args.path).resolve().parent
    return open_target(above) if (above / "config.json").is_file() and any(above.glob("*.safetensors")) else None


def _print(found: Diagnosis) -> None:
    from rich.text import Text

    out, _ = base.consoles()
    out.print(f"{found.path}: {found.format or 'unknown format'}", style="bold", markup=False, soft_wrap=True)
    out.print(found.title, markup=False, soft_wrap=True)
    for name, value in found.sizes.items():
        out.print(f"  {name:22} {value}", markup=False)
    for problem in found.problems:
        style = "red" if problem.level == "error" else "yellow"
        out.print(Text(f"{problem.level:7} {problem.name}: ", style=style) + Text(problem.text))
    if not found.problems:
        out.print("No problems found.")
