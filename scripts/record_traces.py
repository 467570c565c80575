"""Records the runs that come with the app: real runs of the default target, each with its measured plain run.

    PYTHONPATH=. python scripts/record_traces.py [--only NAME] [--out traces]

The first screen shows the first of them, the compare page the first two that share a prompt. Learned drafters are left out,
with a line that says so, where their checkpoint is missing.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from specviz.analysis.summary import measured_speedup, summarise
from specviz.build import parse_spec
from specviz.errors import Missing, SpecvizError
from specviz.sampling import Sampling
from specviz.settings import Settings
from specviz.ui.engine import Ask, Engine
from specviz.ui.presets import PRESETS
from specviz.ui.runs import play

LIMIT = 150 * 1024  # bytes of one file
PATIENCE = 600.0  # seconds for loading the model
MOON = "List three facts about the Moon, then explain tides in two sentences."
PROMPTS = {preset.name: preset.prompt for preset in PRESETS}


@dataclass(frozen=True)
class Recording:
    """One run to record: its file name, prompt, drafter, rule, temperature and length."""

    name: str
    prompt: str
    spec: str
    rule: str = "greedy"
    temperature: float = 0.0
    tokens: int = 64


RECORDINGS = (
    Recording("1-moon-eagle3", MOON, "eagle3@dynamic:nodes=8,depth=4,top_k=4"),  # larger than what is fastest on a CPU, as there is more to see
    Recording("2-moon-medusa", MOON, "medusa@dynamic:nodes=8,depth=3,top_k=6"),
    Recording("3-rewrite-prompt-lookup", PROMPTS["Rewrite"], "prompt_lookup"),
)


def record(engine: Engine, one: Recording, folder: Path) -> str:
    """Records one run and returns a line about it. Raises SpecvizError when it failed or became too large."""
    ask = Ask(one.prompt, parse_spec(one.spec), one.rule, {}, Sampling(temperature=one.temperature), one.tokens)
    step = list(play(engine, ask, plain=True))[-1]
    if step.stage != "done" or step.trace is None:
        raise SpecvizError(f"{one.name}: {step.message}")
    path = step.trace.save(folder / f"{one.name}.jsonl.gz")
    if path.stat().st_size > LIMIT:
        raise SpecvizError(f"{path.name} has {path.stat().st_size:,} bytes, more than {LIMIT:,}. Record fewer tokens.")
    numbers, speedup = summarise(step.trace), measured_speedup(step.trace)
    return f"{path.name}: {path.stat().st_size // 1024} KiB, {numbers.rounds} rounds, tau {numbers.tau or 0:.2f}, measured speed-up {speedup or 0:.2f}"


def main() -> int:
    """Records what was asked for; returns 1 when something failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="record this name only")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "traces")
    options = parser.parse_args()
    engine = Engine(Settings.from_env())
    print(engine.wait(PATIENCE).text)  # loads in the background, as the app does: what this thread computes would slow all runs
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for one in RECORDINGS:
        if options.only in (None, one.name):
            try:
                engine.drafter(parse_spec(one.spec))
                print(record(engine, one, options.out))
            except Missing as problem:
                print(f"{one.name} left out: {problem}")
            except SpecvizError as problem:
                print(f"{one.name} failed: {problem}", file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
