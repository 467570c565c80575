"""A drafter against plain decoding over many prompts: what `bench --json` writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from statistics import median
from typing import Any

from specviz.analysis.compare import Difference
from specviz.analysis.cost import decompose_against
from specviz.analysis.summary import Summary
from specviz.prompts import Prompt

DEFINITIONS = {
    "speedup": "tokens_per_second of all prompts together over the baseline's, same prompts, seed, device, dtype and engine, run in turn after a warm-up",
    "speedup_median": "median over prompts of each prompt's own ratio",
    "equal_to_baseline": "share of prompts whose new tokens are those of plain decoding with the same seed; null where no rule promises that",
    "cost": "measured seconds per round and per plain step; speedup = tau / (sum of the round / plain)",
    "gap": "how far the target's logits of the two tokens lie apart (above temperature 0: how far the draw lay from the edge between tokens)",
    "resolution": "what the dtype can tell apart there: its epsilon times the largest logit (over temperature)",
}


@dataclass(frozen=True)
class Run:
    """One drafter (or the baseline) on one prompt: numbers, new token ids, whether children were sampled from q, and the run's meta record."""

    prompt: Prompt
    summary: Summary
    tokens: tuple[int, ...]
    sampled: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """A drafter's run beside the baseline's of the same prompt.

    `difference` is None when the texts are equal, or when they need not be: then `incomparable` says why.
    """

    run: Run
    baseline: Run
    difference: Difference | None = None
    incomparable: str | None = None

    @property
    def speedup(self) -> float | None:
        return _ratio(self.run.summary.tokens_per_second, self.baseline.summary.tokens_per_second)


def total(summaries: Iterable[Summary]) -> Summary:
    """Returns the sum of several runs."""
    return reduce(add, summaries, Summary())


def result(name: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Returns one entry of `drafters`: the numbers over all prompts, per task where prompts have one, and per prompt."""
    tasks = sorted({pair.run.prompt.task for pair in pairs if pair.run.prompt.task})
    return {
        "name": name,
        **_numbers(pairs),
        "why_not_comparable": next((pair.incomparable for pair in pairs if pair.incomparable), None),
        "differences": [_difference(pair) for pair in pairs if pair.difference is not None],
        "tasks": {task: _numbers([pair for pair in pairs if pair.run.prompt.task == task]) for task in tasks},
        "per_prompt": [_one(pair) for pair in pairs],
        "drafter": pairs[0].run.meta.get("drafter") if pairs else None,
    }


def _numbers(pairs: Sequence[Pair]) -> dict[str, Any]:
    mine, plain = total(pair.run.summary for pair in pairs), total(pair.baseline.summary for pair in pairs)
    ratios = [pair.speedup for pair in pairs if pair.speedup is not None]
    numbers = mine.to_json()
    kept = ("new_tokens", "target_forwards", "acceptance_by_depth", "acceptance_histogram", "draft_tokens", "accepted_draft_tokens", "seconds")
    return {
        "prompts": len(pairs),
        "tau": mine.tau,
        "tokens_per_second": mine.tokens_per_second,
        "speedup": _ratio(mine.tokens_per_second, plain.tokens_per_second),
        "speedup_median": median(ratios) if ratios else None,
        "equal_to_baseline": equal_share(pairs),
        "baseline_tokens_per_second": plain.tokens_per_second,
        "cost": _cost(mine, plain),
        **{key: numbers[key] for key in kept},
    }


def equal_share(pairs: Sequence[Pair]) -> float | None:
    """Returns the share of prompts with equal texts, None when some of them need not be equal."""
    if not pairs or any(pair.incomparable for pair in pairs):
        return None
    return sum(pair.difference is None for pair in pairs) / len(pairs)


def _cost(mine: Summary, plain: Summary) -> dict[str, float] | None:
    parts = decompose_against(mine, plain.decoding_seconds / plain.rounds if plain.rounds else 0.0)
    if parts is None:
        return None
    spent = {name: getattr(parts, name) for name in ("draft", "verify", "rule", "commit", "plain")}
    return {**spent, "round_in_plain_steps": parts.round_cost}


def _difference(pair: Pair) -> dict[str, Any]:
    assert pair.difference is not None
    return {"prompt": pair.run.prompt.name, **pair.difference.to_json()}


def _one(pair: Pair) -> dict[str, Any]:
    mine, prompt = pair.run.summary, pair.run.prompt
    return {
        "prompt": prompt.name, "task": prompt.task, "prompt_tokens": mine.prompt_tokens, "new_tokens": mine.new_tokens, "target_forwards": mine.target_forwards,
        "tau": mine.tau, "tokens_per_second": mine.tokens_per_second, "baseline_tokens_per_second": pair.baseline.summary.tokens_per_second,
        "speedup": pair.speedup, "equal_to_baseline": None if pair.incomparable else pair.difference is None,
    }  # fmt: skip


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
