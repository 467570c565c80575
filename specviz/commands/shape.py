"""Find the tree shape that suits a trained head.

  search --drafter medusa --nodes 64      grow a sparse static tree from the ranks that the head's right guesses had

The text is greedy text of the target that the head was not trained on: captured features (--features; by default the newest
under runs/features of this target), or its answers to the prompts of a file (--prompts). One half of it grows the tree, the other
half measures it. The file is offered by app and command line as the shape `searched`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.commands import base
from specviz.errors import BadInput, Missing

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.analysis.tree_search import RankTable, Search
    from specviz.shapes._files import ShapeFile
    from specviz.target import Target
    from specviz.training.greedy_text import GreedyText
    from specviz.training.ranks import RankReader

PREFIXES = ("drafter",)
LENGTHS = ("expected", "anywhere", "measured")  # of analysis.tree_search.Measured
FEATURES, TEXTS = Path("runs/features"), Path("runs/report")


def configure(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(title="what to do", metavar="STEP", required=True)
    search = steps.add_parser("search", help="grow a sparse static tree for a trained head")
    search.add_argument("--drafter", required=True, metavar="SPEC", help="a drafter with a trained head, for example medusa or eagle:checkpoint=FOLDER")
    search.add_argument("--nodes", type=base.positive, default=64, metavar="N", help="nodes of the tree, the root included (default: %(default)s)")
    text = search.add_mutually_exclusive_group()
    text.add_argument("--features", type=Path, nargs="+", metavar="FOLDER", help="captured hidden states (default: the newest of this target in runs/features)")
    text.add_argument("--prompts", type=Path, metavar="FILE", help="prompts that the head was not trained on; the target answers them first")
    search.add_argument("--limit", type=base.positive, metavar="N", help="use the first N held-out records, or prompts")
    search.add_argument("--max-new-tokens", type=base.positive, default=128, metavar="N", help="per prompt (default: %(default)s)")
    search.add_argument("--out", type=Path, metavar="FILE", help="default: models/TARGET/shapes/DRAFTER_NODES.json")
    search.add_argument("--json", action="store_true", help="print what the file holds and nothing else")
    base.add_target_options(search)


def run(args: argparse.Namespace) -> int:
    """Searches, writes the shape file and prints its table."""
    from specviz.build import parse_spec
    from specviz.shapes._files import FOLDER, write_shape
    from specviz.sources import models_dir
    from specviz.training.ranks import RankReader

    out, log = base.consoles()
    _check(args)
    with base.only_json(args.json):
        target = base.load_target(args, log)
        spec = parse_spec(args.drafter)
        reader = RankReader(target, spec, args.knobs["drafter"])
        name = f"{spec.drafter}_{args.nodes}"
        place = args.out or models_dir() / target.name / FOLDER / f"{name}.json"
        shape, found = _search(args, target, reader, place.stem, log)
    write_shape(place, shape)
    if args.json:
        sys.stdout.write(base.dump(shape.to_json()))
    else:
        _print(out, found, shape, _use(spec.drafter, target, place))
    return 0


def _check(args: argparse.Namespace) -> None:
    from specviz.shapes.base import MAX_NODES

    if not 2 <= args.nodes <= MAX_NODES:
        raise BadInput(f"--nodes {args.nodes} is out of range. Expected 2 to {MAX_NODES}, the root included.")
    if args.out is not None and args.out.suffix != ".json":
        raise BadInput(f"--out {args.out} does not end in .json, so it could not be found as a shape.")
    if args.out is not None:
        base.output_file(str(args.out))


def _search(args: argparse.Namespace, target: Target, reader: RankReader, name: str, log: Console) -> tuple[ShapeFile, Search]:
    """Returns the shape file and what it was made from."""
    from specviz.analysis.tree_search import search
    from specviz.drafters.head_file import hash_weights
    from specviz.shapes._files import ShapeFile
    from specviz.training.ranks import static_trees

    source, texts = _texts(args, target, reader, log)
    ranks = []
    with log.status("reading ranks") as status:
        for number, text in enumerate(texts, 1):
            ranks.append(reader.read(text))
            status.update(f"reading ranks: {number} texts, {sum(map(len, ranks))} positions")
    if sum(map(bool, ranks)) < 2:
        raise BadInput(f"{source} holds {len(ranks)} greedy texts, and a search needs two at least: one to grow the tree on, one to measure it.")
    found = search(ranks, args.nodes, name, static_trees())
    if not found.paths:
        raise BadInput(f"No guess of {args.drafter!r} was right on {source}, so there is nothing to grow a tree from. Is it this target's head?")
    made = {
        "made": datetime.now(UTC).date().isoformat(),
        "drafter": {"name": reader.drafter.method, "checkpoint": hash_weights(reader.drafter.folder)},
        "target": {"name": target.name, "weights": target.fingerprint.weights},
        "text": {"name": source, "texts": len(ranks), "tokens": sum(map(len, ranks))},
        **_lengths(found),
    }
    return ShapeFile(name, found.paths, made), found


def _texts(args: argparse.Namespace, target: Target, reader: RankReader, log: Console) -> tuple[str, Iterator[GreedyText]]:
    """Returns what the text is called and the text."""
    from specviz.training.fixed_text import fixed_text, keep_states, read_questions
    from specviz.training.greedy_text import captured_texts, fixed_texts, newest_capture

    say = base.teller(log)
    if args.prompts is not None:
        questions = read_questions(target, args.prompts, args.limit)
        text = fixed_text(target, questions, args.prompts.name, max_new_tokens=args.max_new_tokens, out=TEXTS, say=say)
        keep_states(target, text, reader.drafter.taps, say)
        return text.name, fixed_texts(text, reader.drafter.taps)
    folders = args.features or [newest_capture(FEATURES, target.fingerprint.weights)]
    if folders == [None]:
        raise Missing(f"No features of {target.name} in {FEATURES}. Capture some with `features`, or give --prompts FILE.")
    if not args.features:
        say(f"using the features in {folders[0]}")
    return " + ".join(folder.name for folder in folders), captured_texts(folders, reader.drafter, args.limit)


def _lengths(found: Search) -> dict[str, Any]:
    own = found.compared[0]
    compared = [
        {"name": tree.name, "nodes": tree.nodes, "depth": tree.depth, **{kind: round(getattr(tree, kind), 4) for kind in LENGTHS}} for tree in found.compared
    ]
    return {
        "ranks": {"positions": found.table.positions, "counts": [list(row) for row in found.table.counts]},
        "expected_length": round(own.expected, 4),
        "measured_length": round(own.measured, 4),
        "rounds": own.rounds,
        "compared": compared,
    }


def _use(drafter: str, target: Target, place: Path) -> str:
    """Returns the spec that decodes with the new file."""
    from specviz.shapes._files import shape_names

    name = next((known for known, file in shape_names().items() if file.resolve() == place.resolve()), place)
    return f"{drafter}@searched:file={name}"


def _print(out: Console, found: Search, shape: ShapeFile, use: str) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out.print(_rank_table(found.table))
    table = Table(box=box.SIMPLE_HEAD, title="Tokens per round at temperature 0, on the half of the text that measures", title_justify="left", pad_edge=False)
    table.add_column("tree")
    for name in ("nodes", "depth", *LENGTHS):
        table.add_column(name, justify="right")
    for number, tree in enumerate(found.compared):
        values = (str(tree.nodes), str(tree.depth), *(f"{getattr(tree, kind):.3f}" for kind in LENGTHS))
        table.add_row(Text(tree.name), *values, style="bold" if not number else None)
    out.print(table)
    out.print("Expected: from the accuracy of each rank, as if depths were independent. Anywhere: with depths as they are, over all positions.", markup=False)
    out.print("Measured: round by round, each where the one before it ended.", markup=False)
    out.print(f"Use it as {use}", markup=False, soft_wrap=True)


def _rank_table(table: RankTable) -> Any:
    from rich import box
    from rich.table import Table

    ranks: Sequence[int] = range(5)
    shown = Table(box=box.SIMPLE_HEAD, title="Where the text's token stood in q, on the half that grows the tree", title_justify="left", pad_edge=False)
    for name in ("depth", *(f"rank {rank}" for rank in ranks), f"top {len(table.counts[0])}"):
        shown.add_column(name, justify="right")
    for depth, row in enumerate(table.accuracy, 1):
        shown.add_row(str(depth), *(f"{row[rank]:.3f}" for rank in ranks), f"{sum(row):.3f}")
    return shown
