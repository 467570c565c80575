"""List drafters, rules, shapes and plots, with their knobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from specviz.commands.base import consoles, dump
from specviz.registry import discover, knobs, summary


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints what the registries hold; nothing is listed by hand."""
    listing = list_all()
    if args.json:
        sys.stdout.write(dump(listing))
    else:
        _print(listing)
    return 0


def list_all() -> dict[str, list[dict[str, Any]]]:
    """Returns {"drafters": [...], "rules": [...], "shapes": [...], "plots": [...]}: name, summary, knobs, and what a kind has of its own."""
    from specviz import acceptance, drafters, plots, shapes
    from specviz.acceptance.base import is_greedy_only, is_lossless

    return {
        "drafters": [_entry(name, thing) | _shape_of(name, thing) for name, thing in discover(drafters).items()],
        "rules": [_entry(name, rule) | {"lossless": is_lossless(rule), "greedy_only": is_greedy_only(rule)} for name, rule in discover(acceptance).items()],
        "shapes": _entries(shapes),
        "plots": _entries(plots),
    }


def _entries(package: ModuleType) -> list[dict[str, Any]]:
    return [_entry(name, thing) for name, thing in discover(package).items()]


def _entry(name: str, thing: Any) -> dict[str, Any]:
    return {"name": name, "summary": summary(thing), "knobs": [knob.to_json() for knob in knobs(thing)]}


def _shape_of(name: str, cls: Any) -> dict[str, Any]:
    from specviz.analysis.head_report import has_report
    from specviz.analysis.remembered import remembered_budget
    from specviz.sources import DEFAULT_TARGET, models_dir

    folder = models_dir() / DEFAULT_TARGET / name
    budget = remembered_budget(folder, name) if cls.learned else None
    auto = {"auto": budget.to_json() if budget else None} if cls.learned and has_report(folder) else {}
    return auto | {"default_shape": cls.default_shape, "default_shape_knobs": dict(cls.default_knobs), "learned": cls.learned}


def _print(listing: Mapping[str, list[dict[str, Any]]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out, _ = consoles()
    for kind, entries in listing.items():
        table = Table(box=box.SIMPLE_HEAD, title=kind.capitalize(), title_justify="left", title_style="bold", pad_edge=False)
        table.add_column("name", no_wrap=True, style="bold")
        table.add_column("what it does", ratio=1)
        table.add_column("knobs, with their defaults", ratio=1)
        for entry in entries:
            table.add_row(entry["name"], Text(entry["summary"] + _remark(entry)), Text("\n".join(f"{k['name']}={k['default']}" for k in entry["knobs"])))
        out.print(table)
    out.print("Give knobs as --shape.NAME, --rule.NAME and --drafter.NAME, or in a spec: eagle@dynamic:nodes=12,depth=4", markup=False)


def _remark(entry: Mapping[str, Any]) -> str:
    if "lossless" in entry:
        return " (lossless)" if entry["lossless"] else " (lossy)"
    if "auto" in entry:
        from specviz.analysis.budget import budget_text

        if entry["auto"] is None:
            return f" By itself: {entry['default_shape']} with nodes=auto, decided by what this machine measures at its first use."
        return f" By itself: {entry['default_shape']} with {budget_text(entry['auto'])}."
    suited = ", ".join(f"{name}={value}" for name, value in entry.get("default_shape_knobs", {}).items())
    return f" By itself: {entry['default_shape']}{f' with {suited}' if suited else ''}." if entry.get("default_shape") else ""
