"""Read a recorded run in the terminal: what it was, its numbers, and round by round the candidate tree with its verdicts.

Rounds are numbered from 1. The marks: + accepted, x rejected, = accepted by the rule but not chosen, . untested or never reached, > passenger.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from specviz.commands import base
from specviz.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.trace import Trace

SHOWN = 3  # rounds whose trees are printed when none are asked for


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a trace saved as .jsonl or .jsonl.gz")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--round", type=base.positive, metavar="N", help="show the tree of one round")
    which.add_argument("--rounds", metavar="A-B", help=f"show the trees of these rounds, or `all` (default: the first {SHOWN})")
    parser.add_argument("--row", type=int, default=0, help="row of a batched run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the numbers as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints the account, or its numbers as JSON."""
    from specviz.analysis.summary import account
    from specviz.trace import Trace

    trace = Trace.load(args.file)
    trace.started(args.row)  # a row that is not there is named before anything is printed
    if args.json:
        sys.stdout.write(base.dump(account(trace, args.row)))
        return 0
    rounds = trace.rounds(args.row)
    first, last = _span(args, len(rounds))
    out, _ = base.consoles()
    _print_head(out, trace, args.row)
    if not rounds:
        out.print("No trees were recorded.", markup=False)
    from specviz.commands.show_round import print_round

    for number in range(first, last + 1):
        print_round(out, rounds[number - 1], number, trace.strings)
    if last < len(rounds) and args.round is None and args.rounds is None:
        out.print(f"{len(rounds) - last} more rounds: --rounds {last + 1}-{len(rounds)}, or --rounds all.", markup=False)
    return 0


def _span(args: argparse.Namespace, count: int) -> tuple[int, int]:
    """Returns the first and last round to show; raises BadInput when the run does not have them."""
    if args.round is None and args.rounds in (None, "all"):
        return 1, count if args.rounds else min(SHOWN, count)
    text = str(args.round) if args.rounds is None else args.rounds
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= count:
        raise BadInput(f"There is no round {text}: this run has rounds 1 to {count}. Expected for example --round 2 or --rounds 1-5.")
    return first, last


def _print_head(out: Console, trace: Trace, row: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from specviz.commands.show import FAINT, flowing, meta_lines, print_numbers

    lines = Table.grid(padding=(0, 2))
    start, end = trace.started(row), trace.finished(row)
    for name, value in (
        *meta_lines(trace, row),
        ("prompt", start.prompt or _text(trace, start.prompt_ids)),
        ("text", end.text if end else _text(trace, trace.emitted(row))),
    ):
        lines.add_row(Text(name, FAINT), Text(flowing(str(value))))
    out.print(lines)
    out.print()
    print_numbers(out, trace, row)


def _text(trace: Trace, ids: Iterable[int]) -> str:
    return "".join(trace.strings.get(token, "") for token in ids)
