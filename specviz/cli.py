"""The command line: `python -m specviz VERB ...`. One file a verb in specviz/commands; every error is one clear line."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

from specviz import __version__, commands
from specviz.analysis.words import harmless
from specviz.commands.base import Knobs, take_knobs
from specviz.errors import BadInput, SpecvizError

FAILED, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit status: 0 done, 2 a wrong value or a missing thing (one line on stderr), 130 Ctrl-C."""
    try:
        plain, knobs = take_knobs(sys.argv[1:] if argv is None else argv)
        args = build_parser().parse_args(plain)
        args.knobs = _fitting(knobs, args)
        status = int(args.run(args) or 0)
        sys.stdout.flush()  # here, where a broken pipe is caught
        return status
    except SpecvizError as problem:
        return _say(str(problem), FAILED)
    except BrokenPipeError:  # the reader of a pipe left, as `head` does; nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _say("stopped.", INTERRUPTED)
    except OSError as problem:
        return _say(f"{problem.strerror or problem}{f': {problem.filename}' if problem.filename else ''}", FAILED)


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser with one subparser per verb."""
    parser = argparse.ArgumentParser(prog="python -m specviz", description="Real speculative decoding, traced and shown.")
    parser.add_argument("--version", action="version", version=f"specviz {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, module in find_verbs().items():
        first = (module.__doc__ or "").split("\n")[0]
        verb = verbs.add_parser(name, help=first, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        module.configure(verb)
        verb.set_defaults(run=module.run, verb=name, prefixes=getattr(module, "PREFIXES", ()))
    return parser


def find_verbs() -> dict[str, ModuleType]:
    """Returns {verb: module} for every file of specviz/commands with a `configure` and a `run`."""
    found = {}
    for info in sorted(pkgutil.iter_modules(commands.__path__), key=lambda i: i.name):
        module = importlib.import_module(f"{commands.__name__}.{info.name}")
        if hasattr(module, "configure") and hasattr(module, "run"):
            found[info.name] = module
    return found


def _fitting(knobs: Knobs, args: argparse.Namespace) -> Knobs:
    """Refuses knobs that the verb does not take."""
    for prefix, values in knobs.items():
        if values and prefix not in args.prefixes:
            takes = " and ".join(f"--{p}.NAME" for p in args.prefixes) or "none"
            raise BadInput(f"--{prefix}.{next(iter(values))} is not an option of {args.verb!r}. Knobs it takes: {takes}.")
    return knobs


def _say(message: str, status: int) -> int:
    sys.stderr.write(f"specviz: {harmless(message)}\n")
    return status
