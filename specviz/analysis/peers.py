"""Ways to decode the same prompts side by side: the numbers that `bench --peers` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from specviz.analysis.compare import Difference, first_difference
from specviz.analysis.profile import Spread

DEFINITIONS = {
    "tokens_per_second": "new tokens / wall seconds of the whole call, the prompt's forward included; median over prompts, with quartiles",
    "speed_ratio": "a prompt's tokens per second over the reference's on the same prompt; median over prompts, with quartiles",
    "tau": "new tokens / target forwards that gave tokens, the prompt's forward included where it gave one; plain decoding has 1; null where a peer does not tell",
    "equal": "share of prompts whose new tokens are the reference's, over the prompts that both decoded",
    "memory": "resident bytes of the peer's own process: after loading, and the largest amount at any time",
}


@dataclass(frozen=True)
class Sample:
    """One prompt decoded by one peer: new token ids, wall seconds, target forwards (None: not told)."""

    tokens: tuple[int, ...]
    seconds: float
    forwards: int | None = None

    @property
    def tokens_per_second(self) -> float:
        return len(self.tokens) / self.seconds


@dataclass
class Entrant:
    """One row of the table while it is measured: who, by which settings, its samples by the place of their prompt, why it stopped."""

    name: str
    label: str
    about: str
    notes: str = ""
    samples: dict[int, Sample] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


def differences(entrant: Entrant, reference: Entrant) -> dict[int, Difference]:
    """Returns where texts part from the reference's, by the place of their prompt."""
    both = ((place, first_difference(reference.samples[place].tokens, entrant.samples[place].tokens)) for place in _shared(entrant, reference))
    return {place: found for place, found in both if found is not None}


def row(entrant: Entrant, reference: Entrant, prompts: Sequence[str], told: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one entry of `peers`; `told` are the differences as records, with their gap where somebody measured it."""
    samples, shared = entrant.samples.values(), _shared(entrant, reference)
    ratios = [entrant.samples[place].tokens_per_second / reference.samples[place].tokens_per_second for place in shared]
    return {
        "name": entrant.name,
        "label": entrant.label,
        "about": entrant.about,
        "notes": entrant.notes,
        "reason": entrant.reason,
        "versions": dict(entrant.versions),
        "prompts": len(entrant.samples),
        "new_tokens": sum(len(sample.tokens) for sample in samples),
        "seconds": sum(sample.seconds for sample in samples),
        "tokens_per_second": _spread([sample.tokens_per_second for sample in samples]),
        "speed_ratio": _spread(ratios),
        "tau": tau(list(samples)),
        "equal": (len(shared) - len(differences(entrant, reference))) / len(shared) if shared else None,
        "differences": [{"prompt": prompts[place], **told[place]} for place in sorted(told)],
        "memory": dict(entrant.memory),
        "per_prompt": [_one(prompts[place], sample, entrant, reference, place) for place, sample in sorted(entrant.samples.items())],
    }


def tau(samples: Sequence[Sample]) -> float | None:
    """Returns new tokens per target forward of all samples together, None where forwards are not known."""
    counts = [sample.forwards for sample in samples]
    if not counts or None in counts:
        return None
    return sum(len(sample.tokens) for sample in samples) / sum(count or 0 for count in counts)


def _shared(entrant: Entrant, reference: Entrant) -> list[int]:
    return sorted(entrant.samples.keys() & reference.samples.keys())


def _one(prompt: str, sample: Sample, entrant: Entrant, reference: Entrant, place: int) -> dict[str, Any]:
    known = reference.samples.get(place)
    equal = None if known is None else known.tokens == sample.tokens
    return {"prompt": prompt, "new_tokens": len(sample.tokens), "seconds": sample.seconds, "forwards": sample.forwards, "equal": equal}


def _spread(values: Sequence[float]) -> dict[str, Any] | None:
    return asdict(Spread.of(values)) if values else None
