"""Measure drafters against plain decoding, prompt by prompt; or what recording costs.

Drafters are specs, separated by commas: prompt_lookup,medusa,eagle@dynamic:nodes=12,depth=4.
Prompts are JSON lines with `prompt` or `turns` (the first turn is taken), or one prompt a line; without --prompts a few built-in ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.commands import base
from specviz.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.analysis.versus import Pair
    from specviz.bench import Bench
    from specviz.build import Spec
    from specviz.prompts import Prompt

PREFIXES = ("rule",)
OVERHEAD_AIM = 1.03


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompts", metavar="FILE", help="prompts to decode (default: six built-in ones)")
    parser.add_argument("--limit", type=base.positive, metavar="N", help="take the first N prompts")
    parser.add_argument("--drafters", default="prompt_lookup", metavar="SPECS", help="default: %(default)s")
    parser.add_argument("--rule", default="rejection", metavar="NAME", help="acceptance rule (default: %(default)s)")
    base.add_sampling_options(parser, max_new_tokens=128)
    base.add_target_options(parser)
    parser.add_argument("--explain", action="store_true", help="also show the terms of the speed-up, tau / cost of a round, and which one costs most")
    parser.add_argument("--trace-overhead", action="store_true", help="measure instead what recording costs in wall time")
    parser.add_argument("--peers", action="store_true", help="measure instead against transformers' generate, flashspec and llama.cpp, a process each")
    parser.add_argument("--only", metavar="NAMES", help="with --peers: only these, separated by commas (default: every file of specviz/peers)")
    parser.add_argument("--repeats", type=base.positive, default=3, metavar="N", help="with --trace-overhead: runs per prompt (default: %(default)s)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the results to FILE, or print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Measures, shows a table and writes the JSON."""
    specs, prompts = _specs(args.drafters), _prompts(args)
    if args.only is not None and not args.peers:
        raise BadInput(f"--only {args.only!r} says which peers to measure, so it needs --peers. Drafters are chosen by --drafters.")
    if args.peers:
        from specviz.commands.show_peers import bench_peers

        return bench_peers(args, specs, prompts)
    place = base.output_file(args.json) if args.json not in (None, "-") else None
    rule, sampling = _rule(args), base.sampling_of(args)
    out, log = base.consoles()
    with base.only_json(args.json == "-"):
        from specviz.bench import Bench, Plan

        bench = Bench(base.load_target(args, log), specs, Plan(rule, sampling, args.max_new_tokens, args.raw), base.teller(log))
        record = _overheads(bench, prompts, args, log) if args.trace_overhead else _measure(bench, prompts, args, log, place)
    if args.json == "-":
        sys.stdout.write(base.dump(record))
    else:
        (_print_overheads if args.trace_overhead else _print)(out, record)
    if place is not None:
        base.write_record(place, record)
        log.print(f"saved {place}", markup=False)
    return 0


def _specs(text: str) -> list[Spec]:
    from specviz.build import check_spec, parse_spec, split_specs

    specs = [check_spec(parse_spec(part)) for part in split_specs(text)]
    names = [str(spec) for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not specs or twice:
        raise BadInput(f"--drafters {text!r} {f'names {twice!r} twice' if twice else 'names no drafter'}. Expected for example prompt_lookup,eagle.")
    return specs


def _prompts(args: argparse.Namespace) -> list[Prompt]:
    from specviz.prompts import BUILT_IN, read_prompts

    return read_prompts(Path(args.prompts), args.limit) if args.prompts else list(BUILT_IN)[: args.limit]


def _rule(args: argparse.Namespace) -> Any:
    from specviz.build import build_rule

    return build_rule(args.rule, args.knobs["rule"])


def _measure(bench: Bench, prompts: Sequence[Prompt], args: argparse.Namespace, log: Console, place: Path | None) -> dict[str, Any]:
    """Runs the bench under a progress bar that shows each drafter's running tau; writes what is known to `place` after every prompt.

    So a bench that is broken off loses only the prompt that it was at.
    """
    from specviz.analysis.versus import total

    pairs: dict[str, list[Pair]] = {name: [] for name in bench.drafters}
    with _progress(log) as bar:
        task = bar.add_task("warming up", total=len(prompts) * len(pairs))
        bench.warm_up(prompts[0])
        for name, pair in bench.pairs(prompts):
            pairs[name].append(pair)
            taus = ((each, total(p.run.summary for p in found).tau) for each, found in pairs.items() if found)
            bar.update(task, advance=1, description="tau  " + "  ".join(f"{each} {tau or 0:.2f}" for each, tau in taus))
            if place is not None and len({len(found) for found in pairs.values()}) == 1:  # everybody is done with this prompt
                base.write_record(place, _record(pairs, args))
    return _record(pairs, args)


def _record(pairs: Mapping[str, Sequence[Pair]], args: argparse.Namespace) -> dict[str, Any]:
    from specviz.analysis.versus import result, total

    some = next(iter(pairs.values()))
    results = [result(name, found) | (_explained(found) if args.explain else {}) for name, found in pairs.items()]
    plain = {"name": "autoregressive", **total(pair.baseline.summary for pair in some).to_json()}
    return {"drafters": results, "baseline": plain, "meta": _meta(args, len(some), some[-1].run.meta)}


def _explained(pairs: Sequence[Pair]) -> dict[str, Any]:
    from specviz.analysis.cost import explain
    from specviz.analysis.versus import total

    terms = explain(total(pair.run.summary for pair in pairs), total(pair.baseline.summary for pair in pairs))
    return {"explained": terms and terms.to_json()}


def _meta(args: argparse.Namespace, count: int, meta: Mapping[str, Any]) -> dict[str, Any]:
    from specviz.analysis import summary, versus

    told = {key: meta.get(key) for key in ("target", "rule", "sampling", "seed", "device", "dtype", "versions")}
    return {**told, **base.asked(args, count), "definitions": summary.DEFINITIONS | versus.DEFINITIONS}


def _overheads(bench: Bench, prompts: Sequence[Prompt], args: argparse.Namespace, log: Console) -> dict[str, Any]:
    from specviz.bench import trace_overhead

    results = []
    with _progress(log) as bar:
        task = bar.add_task("warming up", total=args.repeats * len(prompts) * len(bench.drafters))
        bench.warm_up(prompts[0])
        for name in bench.drafters:
            bar.update(task, description=name)
            found = trace_overhead(bench, name, prompts, args.repeats, lambda: bar.advance(task))
            results.append({"name": name, "ratio": found.ratio, "recorded_seconds": found.recorded, "plain_seconds": found.plain})
    meta = bench.run(bench.baseline, prompts[0], 1).meta
    return {"trace_overhead": results, "aim": OVERHEAD_AIM, "meta": _meta(args, len(prompts), meta)}


def _progress(log: Console) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=log)


def _print(out: Console, record: Mapping[str, Any]) -> None:
    from specviz.commands.show_bench import bench_remarks, bench_table, explain_remarks, explain_table, task_table

    out.print(bench_table(record))
    if any(len(entry["tasks"]) > 1 for entry in record["drafters"]):
        out.print(task_table(record))
    for line in bench_remarks(record):
        out.print(line, markup=False)
    if any(entry.get("explained") for entry in record["drafters"]):
        out.print(explain_table(record))
        for line in explain_remarks(record):
            out.print(line, markup=False)


def _print_overheads(out: Console, record: Mapping[str, Any]) -> None:
    from specviz.commands.show import grid

    table = grid("Wall time to drain a run, recorded over not recorded")
    for name in ("drafter", "median ratio", "runs"):
        table.add_column(name, justify="left" if name == "drafter" else "right")
    for entry in record["trace_overhead"]:
        table.add_row(entry["name"], f"{entry['ratio']:.3f}", str(len(entry["plain_seconds"])))
    out.print(table)
    out.print(f"Aim: at most {record['aim']}.", markup=False)
