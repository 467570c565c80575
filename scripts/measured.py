"""Puts measured numbers into the README: python scripts/measured.py BENCH.json [MORE.json ...]

Reads files that `python -m specviz bench --json FILE` wrote, keeps what the tables need in docs/measurements.json, and writes
the tables between the README's two markers. Nothing is typed by hand, so that no number there was not measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured:begin -->\n", "<!-- measured:end -->"
NUMBERS = ("name", "tau", "tokens_per_second", "baseline_tokens_per_second", "speedup", "equal_to_baseline")
OVERHEAD = ("name", "ratio")
HEAD = "| drafter | tokens per target forward (τ) | tokens/s | plain tokens/s | speed-up | prompts with the same text as plain decoding |\n|---|---|---|---|---|---|\n"
NONE = "Not measured yet. `python scripts/measured.py BENCH.json` fills this section from files that `python -m specviz bench --json` wrote.\n"


def main() -> None:
    """Writes docs/measurements.json and the README's section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path, nargs="+")
    kept = [keep(json.loads(path.read_text())) for path in parser.parse_args().bench]
    (ROOT / "docs" / "measurements.json").write_text(json.dumps(kept, indent=1) + "\n")
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    readme.write_text(before + BEGIN + render(kept) + END + rest.split(END, 1)[1])


def keep(bench: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a bench file that the README shows."""
    meta = bench["meta"]
    about = {
        "prompts": f"{meta['prompts']['count']} prompts of {meta['prompts']['file'] or 'the built-in set'}",
        "max_new_tokens": meta["max_new_tokens"],
        "temperature": meta["sampling"]["temperature"],
        "rule": meta["rule"]["name"],
        "target": meta["target"]["name"],
        "device": meta["device"]["name"],
        "dtype": meta["dtype"],
        "versions": {name: meta["versions"][name] for name in ("torch", "transformers")},
        "date": meta["date"][:10],
    }
    return {
        "about": about,
        "drafters": [{key: entry[key] for key in NUMBERS} for entry in bench.get("drafters", ())],
        "trace_overhead": [{key: entry[key] for key in OVERHEAD} for entry in bench.get("trace_overhead", ())],
    }


def render(kept: Sequence[Mapping[str, Any]]) -> str:
    """Returns the Markdown of the section: one table per bench file, what it was measured on, what recording costs."""
    return "\n".join(_one(record) for record in kept) if kept else NONE


def _one(record: Mapping[str, Any]) -> str:
    a = record["about"]
    how = f"{a['target']}, {a['prompts']}, up to {a['max_new_tokens']} new tokens, temperature {a['temperature']:g}, rule {a['rule']}"
    where = f"{a['device']}, {a['dtype']}, torch {a['versions']['torch']}, transformers {a['versions']['transformers']}, {a['date']}"
    text = f"{how}. Measured on: {where}. Speed is decoding only; the prompt's forward is left out.\n\n"
    if record["drafters"]:
        text += HEAD + "".join(_row(entry) for entry in record["drafters"])
    for entry in record["trace_overhead"]:
        text += f"Recording a trace with `{entry['name']}` took {entry['ratio']:.3f} times the wall time of the same run without it.\n"
    return text


def _row(entry: Mapping[str, Any]) -> str:
    share = entry["equal_to_baseline"]
    same = "need not be equal" if share is None else f"{100 * share:.4g} %"
    numbers = f"{entry['tau']:.2f} | {entry['tokens_per_second']:.1f} | {entry['baseline_tokens_per_second']:.1f} | {entry['speedup']:.2f}"
    return f"| `{entry['name']}` | {numbers} | {same} |\n"


if __name__ == "__main__":
    main()
