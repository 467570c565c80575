"""Measures everything that docs/performance.md tells, and writes it: python scripts/bench_report.py (or `make bench-report`)

One JSON file a step in docs/performance/; the page is written from these files alone. A step whose file is newer than the code
and the heads, and was measured on this machine with these versions and options, is not measured again (--force does). So a run that was
broken off goes on where it stopped. --only profile,peers runs single steps, --page writes the page from what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import performance_page

from specviz.build import PLAIN
from specviz.processor import processor_name
from specviz.prompts import read_prompts
from specviz.ready import ready_drafters
from specviz.settings import Settings
from specviz.sources import short_name

ROOT = Path(__file__).resolve().parent.parent
PY = [sys.executable, "-m", "specviz"]
Words = list[str]


@dataclass(frozen=True)
class Plan:
    """What the options ask for; the same for all steps."""

    prompts: str | None
    lookup_prompts: str | None
    lookup_task: str
    limit: int | None
    tokens: int
    repeats: int
    drafters: str
    quick: bool = False

    def common(self, limit: int | None = None) -> Words:
        most = limit if self.limit is None else min(self.limit, limit or self.limit)
        words = ["--max-new-tokens", str(self.tokens)]
        words += ["--prompts", self.prompts] if self.prompts else []
        return words + (["--limit", str(most)] if most else [])


def bench(words: Words, scratch: Path) -> Words:
    return [*PY, "bench", *words, "--json", str(scratch / "out.json")]


def lookup(plan: Plan, scratch: Path) -> Words:
    """prompt_lookup where copying pays: only the prompts of one task, of which a bench would else take the file's first."""
    words = ["--explain", "--drafters", "prompt_lookup", "--max-new-tokens", str(plan.tokens)]
    if plan.lookup_prompts:
        found = [p for p in read_prompts(Path(plan.lookup_prompts)) if p.task == plan.lookup_task]
        if not found:
            raise SystemExit(f"{Path(plan.lookup_prompts).name} holds no prompts of task {plan.lookup_task!r}")
        lines = [json.dumps({"id": p.name, "task": p.task, "prompt": p.text}) for p in found]
        (scratch / f"{plan.lookup_task}.jsonl").write_text("\n".join(lines) + "\n")
        words += ["--prompts", str(scratch / f"{plan.lookup_task}.jsonl")]
    return bench([*words, *(["--limit", str(plan.limit)] if plan.limit else [])], scratch)


def script(name: str, scratch: Path, *words: str) -> Words:
    return [sys.executable, str(ROOT / "scripts" / name), *words, "--json", str(scratch / "out.json")]


# each step's command; it writes JSON into scratch/out.json
STEPS: dict[str, Callable[[Plan, Path], Words]] = {
    "profile": lambda plan, scratch: [*PY, "profile", "--json", str(scratch / "out.json"), *(["--quick"] if plan.quick else [])],
    "explain": lambda plan, scratch: bench(["--explain", "--drafters", plan.drafters, *plan.common()], scratch),
    "sampled": lambda plan, scratch: bench(["--explain", "--temperature", "1", "--drafters", plan.drafters, *plan.common(40)], scratch),
    "lookup": lookup,
    "peers": lambda plan, scratch: bench(["--peers", *plan.common(40)], scratch),
    "overhead": lambda plan, scratch: bench(["--trace-overhead", "--drafters", plan.drafters, "--repeats", str(plan.repeats), *plan.common(6)], scratch),
    "streaming": lambda plan, scratch: script("streaming_check.py", scratch, "--tokens", str(plan.tokens), "--repeats", str(3 * plan.repeats)),
    "startup": lambda plan, scratch: script("startup_check.py", scratch, "--repeats", str(2 * plan.repeats - 1)),
}


def main() -> int:
    """Runs what is due and writes the page; returns 1 when a step failed (its own output says why), 0 otherwise."""
    args = read_arguments()
    plan = Plan(args.prompts, args.lookup_prompts, args.lookup_task, args.limit, args.tokens, args.repeats, args.drafters or measurable(), args.quick)
    args.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in [] if args.page_only else args.only or STEPS:
        place = args.out / f"{name}.json"
        if not args.force and is_fresh(place, plan):
            print(f"{name}: measured already, {place.name} is newer than the code", flush=True)
        elif not step(name, plan, place):
            failed.append(name)
    args.page.write_text(performance_page.render(read_results(args.out)), encoding="utf-8")
    print(f"wrote {args.page}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def read_arguments() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        wrong = [name for name in text.split(",") if name not in STEPS]
        if wrong:
            raise argparse.ArgumentTypeError(f"no step {wrong[0]!r}; there are {', '.join(STEPS)}")
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=names, metavar="STEPS", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--force", action="store_true", help="measure again whatever is there")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--prompts", metavar="FILE", help="prompts for all benches (default: the built-in six)")
    parser.add_argument("--lookup-prompts", metavar="FILE", help="prompts for prompt_lookup, of which one task is taken")
    parser.add_argument("--lookup-task", default="summarization", help="default: %(default)s")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N prompts a bench")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="new tokens a prompt (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--drafters", metavar="SPECS", help="default: every drafter that can run here, as the app starts it")
    parser.add_argument("--quick", action="store_true", help="profile in a few seconds only")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    return parser.parse_args()


def measurable() -> str:
    """Returns every drafter but plain decoding that can run here, as `bench --drafters` takes them."""
    return ",".join(name for name in ready_drafters(short_name(Settings.from_env().target)) if name != PLAIN)


def step(name: str, plan: Plan, place: Path) -> bool:
    """Measures one step and replaces its file at the end; a failed one leaves the old file."""
    print(f"{name}: measuring", flush=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        words = STEPS[name](plan, Path(folder))
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, env=environ, stdout=subprocess.DEVNULL, check=False)
        written = Path(folder) / "out.json"
        if done.returncode or not written.exists():
            print(f"{name}: failed with status {done.returncode}", flush=True)
            return False
        result = json.loads(written.read_text())
        whole = ROOT / "runs" / "performance" / place.name  # every single run, which scripts/measured.py reads too
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(written.read_text(), encoding="utf-8")
    told = {"step": name, "machine": machine(), "plan": shown(plan), "date": datetime.now(UTC).date().isoformat()}
    record = {**told, "seconds": round(time.perf_counter() - start), "result": performance_page.thin(name, result)}
    scratch = place.with_suffix(".part")
    scratch.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(scratch, place)
    print(f"{name}: done in {record['seconds']} s", flush=True)
    return True


def shown(plan: Plan) -> dict[str, Any]:
    """Returns the plan as the files name it: without folders, which are of this machine only."""
    return {**vars(plan), **{name: None if (path := getattr(plan, name)) is None else Path(path).name for name in ("prompts", "lookup_prompts")}}


def is_fresh(place: Path, plan: Plan) -> bool:
    """True when the file is newer than code and heads, and of this machine, these versions and this plan."""
    if not place.exists():
        return False
    sources = [*(ROOT / "specviz").rglob("*.py"), *(ROOT / "models").glob("*/*/*.json"), *(ROOT / "models").glob("*/*/*.safetensors")]
    record = json.loads(place.read_text())
    same = (record["machine"], record["plan"]) == (machine(), shown(plan))
    return same and place.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def machine() -> dict[str, Any]:
    """Returns what a reader must know of the machine: processor, cores, memory, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    told = {"processor": processor_name(), "cores": cores, "memory_gib": round(memory / 2**30), "system": platform.system()}
    return {**told, "threads": os.environ.get("OMP_NUM_THREADS"), "versions": {"python": platform.python_version(), **installed()}}


def installed() -> Mapping[str, str]:
    return {name: version(name) for name in ("torch", "transformers", "gradio")}


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns {step: record} of the files that are there."""
    return {name: json.loads(place.read_text()) for name in STEPS if (place := folder / f"{name}.json").exists()}


if __name__ == "__main__":
    raise SystemExit(main())
