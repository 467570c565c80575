"""The numbers of one run and how they are defined (tau, acceptance, seconds, tokens per second), and of its baseline run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specviz.analysis.acceptance import DepthAcceptance, acceptance_by_depth, add_counts
from specviz.analysis.timeline import DECODING, timeline
from specviz.events import Drafted, Verified
from specviz.trace import Trace

DEFINITIONS = {
    "tau": "mean_acceptance_length: tokens that rounds emitted / rounds; the bonus token is counted, the prefill and its token are not, a cut round counts what it emitted",
    "target_forwards": "verification forwards, one per round; the prefill is not counted",
    "tokens_per_second": "decoding only: tokens that rounds emitted / (draft + verify + accept + commit seconds)",
    "acceptance_by_depth": "conditional: of the rounds that accepted down to depth d - 1 and had a candidate below it, the share that accepted one; unconditional: of all rounds",
    "acceptance_histogram": "entry j: rounds that accepted exactly j drafted tokens",
    "nodes": "the root is counted",
}


@dataclass(frozen=True)
class Summary:
    """Counts and seconds of one run, or of several added up with `+`; every rate follows from them.

    decoded_tokens is what rounds emitted: all new tokens but the prefill's. `spec_tokens` is the most candidates of one round.
    """

    prompt_tokens: int = 0
    new_tokens: int = 0
    rounds: int = 0
    decoded_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    spec_tokens: int = 0
    acceptance_histogram: tuple[int, ...] = ()
    by_depth: DepthAcceptance = field(default_factory=DepthAcceptance)
    seconds: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def target_forwards(self) -> int:
        """Verification forwards: one per round."""
        return self.rounds

    @property
    def tau(self) -> float | None:
        """Mean tokens per target forward, the bonus token included; None before the first round."""
        return self.decoded_tokens / self.rounds if self.rounds else None

    @property
    def decoding_seconds(self) -> float:
        return sum(self.seconds.get(name) or 0.0 for name in DECODING)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens that rounds emitted per second of decoding; prefill and recording are left out."""
        return self.decoded_tokens / self.decoding_seconds if self.decoded_tokens and self.decoding_seconds > 0.0 else None

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.prompt_tokens + other.prompt_tokens, self.new_tokens + other.new_tokens, self.rounds + other.rounds,
            self.decoded_tokens + other.decoded_tokens, self.draft_tokens + other.draft_tokens,
            self.accepted_draft_tokens + other.accepted_draft_tokens, max(self.spec_tokens, other.spec_tokens),
            add_counts(self.acceptance_histogram, other.acceptance_histogram), self.by_depth + other.by_depth,
            {name: _add(self.seconds.get(name, 0.0), other.seconds.get(name, 0.0)) for name in {**self.seconds, **other.seconds}},
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers under the names that `decode --json` prints; `speculative_decoding` repeats them under vLLM's names."""
        return {
            "prompt_tokens": self.prompt_tokens, "new_tokens": self.new_tokens, "rounds": self.rounds, "target_forwards": self.target_forwards,
            "mean_acceptance_length": self.tau, "acceptance_histogram": list(self.acceptance_histogram), "acceptance_by_depth": self.by_depth.to_json(),
            "draft_tokens": self.draft_tokens, "accepted_draft_tokens": self.accepted_draft_tokens,
            "seconds": dict(self.seconds), "tokens_per_second": self.tokens_per_second,
            "speculative_decoding": {
                "mean_acceptance_length": self.tau,
                "draft_acceptance_rate": self.accepted_draft_tokens / self.draft_tokens if self.draft_tokens else None,
                "acceptance_histogram": list(self.acceptance_histogram), "num_spec_steps": self.rounds,
                "num_accepted_draft_tokens": self.accepted_draft_tokens, "num_draft_tokens": self.draft_tokens, "num_spec_tokens": self.spec_tokens,
            },
        }  # fmt: skip


def _add(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def summarise(trace: Trace, row: int = 0) -> Summary:
    """Returns the numbers of one row, finished or still running.

    A run recorded without detail has no trees: its draft counts are 0 and its depths empty, everything else is exact.
    """
    verified = [e for e in trace.events if isinstance(e, Verified) and e.row == row]
    drafted = [sum(map(bool, e.candidate[1:])) for e in trace.events if isinstance(e, Drafted) and e.row == row]
    decoded = sum(len(e.emitted) for e in verified)
    accepted = [len(e.path) for e in verified]
    histogram = [0] * (max(accepted, default=-1) + 1)
    for count in accepted:
        histogram[count] += 1
    first = trace.prefilled(row)
    return Summary(
        len(trace.started(row).prompt_ids), decoded + (first is not None), len(verified), decoded, sum(drafted), sum(accepted), max(drafted, default=0),
        tuple(histogram), acceptance_by_depth(trace.rounds(row)), seconds_by_phase(trace, row),
    )  # fmt: skip


def seconds_by_phase(trace: Trace, row: int = 0) -> dict[str, float | None]:
    """Returns seconds per phase, `total` (prefill and decoding) and `wall` (None while the run goes on)."""
    spent: dict[str, float] = dict.fromkeys(("prefill", *DECODING, "record"), 0.0)
    first = trace.prefilled(row)
    charged: Iterable[Mapping[str, float | None]] = (e.seconds for e in trace.events if isinstance(e, Verified) and e.row == row)
    for seconds in ([first.seconds] if first else []) + list(charged):
        for name, value in seconds.items():
            spent[name] = spent.get(name, 0.0) + (value or 0.0)
    total = spent["prefill"] + sum(spent[name] for name in DECODING)
    end = trace.finished(row)
    return {**spent, "total": total, "wall": end.seconds.get("wall") if end else None}


def account(trace: Trace, row: int = 0) -> dict[str, Any]:
    """Returns all that is known about one row of a run, JSON-safe: the object that `decode --json` prints."""
    start, end = trace.started(row), trace.finished(row)
    strings, ids = trace.strings, trace.emitted(row)
    told = {key: start.meta.get(key) for key in ("target", "drafter", "rule", "sampling", "seed", "device", "dtype", "versions")}
    return {
        "text": end.text if end else "".join(strings.get(token, "") for token in ids),
        "token_ids": ids,
        "finish_reason": end.reason if end else None,
        **summarise(trace, row).to_json(),
        **told,
    }


@dataclass(frozen=True)
class Baseline:
    """A plain run of the same prompt and seed: new tokens, seconds by phase, and when each token stood (seconds of decoding)."""

    tokens: int
    seconds: Mapping[str, float]
    times: tuple[float, ...]
    token_ids: tuple[int, ...] = ()

    @property
    def decoding_seconds(self) -> float:
        return sum(self.seconds.get(name, 0.0) for name in DECODING)

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding only: the prefill's token and seconds are left out."""
        return (self.tokens - 1) / self.decoding_seconds if self.tokens > 1 and self.decoding_seconds > 0.0 else None


def baseline_record(trace: Trace, row: int = 0) -> dict[str, Any]:
    """Returns what `Finished.baseline` holds, made from the trace of a plain run.

    tokens: new tokens, the prefill's included; seconds: by phase; times[i]: seconds of decoding until new token i + 1 stood
    (times[0] = 0, the prefill's token); token_ids and reason: what it wrote and why it ended.
    """
    line, summary, end = timeline(trace, row), summarise(trace, row), trace.finished(row)
    times = [second for second, before, after in zip(line.seconds, (0, *line.tokens), line.tokens, strict=False) for _ in range(after - before)]
    seconds = {name: value for name, value in summary.seconds.items() if value is not None}
    return {"tokens": summary.new_tokens, "seconds": seconds, "times": times, "token_ids": trace.emitted(row), "reason": end.reason if end else None}


def baseline_of(trace: Trace, row: int = 0) -> Baseline | None:
    """Returns the baseline that a trace carries, None when none was run."""
    end = trace.finished(row)
    record = end.baseline if end else None
    if record is None:
        return None
    return Baseline(record["tokens"], dict(record["seconds"]), tuple(record.get("times") or ()), tuple(record.get("token_ids") or ()))


def measured_speedup(trace: Trace, row: int = 0) -> float | None:
    """Returns tokens per second of the run over those of its baseline; None when either is not known."""
    baseline, mine = baseline_of(trace, row), summarise(trace, row).tokens_per_second
    plain = baseline.tokens_per_second if baseline else None
    return mine / plain if mine and plain else None
