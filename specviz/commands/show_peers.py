"""What `bench --peers` does: picks who takes part, measures, prints the table and writes the JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specviz.commands import base
from specviz.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.build import Spec
    from specviz.prompts import Prompt

COLUMNS = ("", "tokens/s", "ratio", "tau", "equal", "peak MB")
UNCHOSEN = ("prompt_lookup",)  # the drafters of a bench for which none were named


def bench_peers(args: argparse.Namespace, specs: Sequence[Spec], prompts: Sequence[Prompt]) -> int:
    """Runs every peer, shows a table and writes the JSON. Raises BadInput above temperature 0: texts can be compared only at 0."""
    if args.temperature:
        raise BadInput(f"--peers compares texts, so it works at temperature 0 only, got {args.temperature:g}.")
    only, place = _only(args.only), base.output_file(args.json) if args.json not in (None, "-") else None
    out, log = base.consoles()

    def keep(record: Mapping[str, Any]) -> None:
        if place is not None:
            base.write_record(place, record)

    with base.only_json(args.json == "-"):
        record = _measure(args, specs, prompts, log, only, keep)
    if args.json == "-":
        sys.stdout.write(base.dump(record))
    else:
        print_peers(out, record)
    if place is not None:
        keep(record)
        log.print(f"saved {place}", markup=False)
    return 0


def _only(names: str | None) -> list[str] | None:
    """Returns the peers that `--only` names, None for all. Raises BadInput for one that is no file of specviz/peers."""
    if names is None:
        return None
    from specviz import peers
    from specviz.registry import discover

    known, chosen = discover(peers), [name.strip() for name in names.split(",") if name.strip()]
    if not chosen or any(name not in known for name in chosen):
        raise BadInput(f"--only {names!r} names {'somebody who is no peer' if chosen else 'nobody'}. Expected some of: {', '.join(known)}.")
    return chosen


def _measure(
    args: argparse.Namespace,
    specs: Sequence[Spec],
    prompts: Sequence[Prompt],
    log: Console,
    only: Sequence[str] | None,
    keep: Callable[[Mapping[str, Any]], None],
) -> dict[str, Any]:
    import torch

    from specviz.peers._measure import Contest, measure
    from specviz.peers.base import Job
    from specviz.settings import Settings
    from specviz.sources import locate, short_name

    settings = Settings.from_env()
    target = args.target or settings.target
    job = Job(target, locate(target), args.device or settings.device, args.dtype or settings.dtype, args.threads or torch.get_num_threads())
    names = [str(spec) for spec in specs]
    chosen = [*names, *best_learned(short_name(target))] if tuple(names) == UNCHOSEN else names
    with log.status("loading") as status:

        def tell(text: str) -> None:
            status.update(text)
            if not log.is_terminal:
                log.print(text, markup=False, soft_wrap=True)

        meta = {**base.asked(args, len(prompts)), "threads": job.threads}
        contest = Contest(
            job, chosen, [p.name for p in prompts], [p.text for p in prompts], args.max_new_tokens, args.raw,
            only=only, tell=tell, keep=lambda record: keep({**record, "meta": meta}),
        )  # fmt: skip
        record = measure(contest)
    return {**record, "meta": meta}


def best_learned(target: str) -> list[str]:
    """Returns the drafter whose head accepts most by its own report; all that have a head here when none has a report."""
    from specviz.ready import best_head, measured_tau, ready_heads

    heads, best = ready_heads(target), best_head(target)
    return [best] if best and measured_tau(heads[best]) else list(heads)


def print_peers(out: Console, record: Mapping[str, Any]) -> None:
    """Prints the table, who is missing and why, and what the columns mean."""
    from specviz.commands.show import grid

    table = grid("The same prompts, weights, dtype and threads, one process each, in turn")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name else "left")
    for entry in record["peers"]:
        if entry["prompts"]:
            table.add_row(*cells(entry))
    out.print(table)
    for entry in record["peers"]:
        if entry["reason"]:
            out.print(f"{entry['label']}: {entry['reason']}", markup=False, soft_wrap=True)
        for one in entry["differences"]:
            gap = "" if one["gap"] is None else f", {one['unit']} gap {one['gap']:.3g} where {one['dtype']} tells {one['resolution']:.2g} apart"
            out.print(f"{entry['label']}, {one['prompt']}: differs at new token {one['position'] + 1}{gap}", markup=False, soft_wrap=True)
        if entry["notes"] and entry["prompts"]:
            out.print(f"{entry['label']}: {entry['notes']}.", markup=False, soft_wrap=True)
    out.print(f"ratio: speed_ratio, against {record['reference']}; in brackets the middle half of the prompts", markup=False, soft_wrap=True)
    for name, text in record["definitions"].items():
        out.print(f"{name}: {text}", markup=False, soft_wrap=True)


def cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the cells of one row."""
    speed, ratio, peak = entry["tokens_per_second"], entry["speed_ratio"], entry["memory"].get("peak")
    return (
        entry["label"],
        f"{speed['median']:.1f} ({speed['low']:.1f} to {speed['high']:.1f})",
        "-" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
        "-" if entry["tau"] is None else f"{entry['tau']:.2f}",
        "-" if entry["equal"] is None else f"{100 * entry['equal']:.0f}%",
        "-" if peak is None else f"{peak / 1e6:.0f}",
    )
