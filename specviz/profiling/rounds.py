"""What a drafter's rounds cost by phase: real decoding of built-in prompts, the node budgets taking turns round by round."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import inf
from random import Random
from time import perf_counter

from specviz import acceptance, shapes
from specviz.analysis.budget import SHAPE
from specviz.analysis.profile import PHASES, DrafterCosts, Rounds, Spread
from specviz.clock import Clock
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter
from specviz.drafters.head_file import hash_weights
from specviz.drafters.heads import HeadDrafter, Turning
from specviz.events import Drafted, Verified
from specviz.graphs.grow import Form
from specviz.profiling.forward import LEAST
from specviz.profiling.machine import count_weights
from specviz.prompts import BUILT_IN
from specviz.registry import Bound, bind, discover
from specviz.sampling import Sampling
from specviz.shapes.base import Growth
from specviz.shapes.dynamic import fitting
from specviz.target import Target
from specviz.tree import TokenTree

TEMPERATURE = 1.0  # stands for every temperature above 0: rule and draw then do the same work
MOST_RUNS = 24  # a model that ends every text at once is not waited for
LONGEST = 512  # new tokens of one run


@dataclass
class Rotation(Turning):
    """A shape that is another one every round, so that all budgets see the same seconds of the machine; notes what it used."""

    budgets: Sequence[int]
    wide: bool = False
    stops: bool = False
    used: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)

    def __call__(self, growth: Growth) -> TokenTree:
        tree: TokenTree = self.coming(growth)
        self.used.append(self._nodes)
        expanded = set(growth.parents) - {-1}
        self.steps.append(len({growth.depths[node] for node in expanded}))
        self.drafted.append(len(expanded))
        return tree

    @property
    def coming(self) -> Bound:
        return shape_of(self._nodes, self.wide, self.stops)

    def replayed(self, form: Form) -> None:
        """Notes a round whose tree was not grown here; a replay computes every step in full width."""
        self.used.append(self._nodes)
        self.steps.append(form.depth)
        self.drafted.append(sum(form.frontiers))

    @property
    def _nodes(self) -> int:
        return self.budgets[len(self.used) % len(self.budgets)]


def shape_of(nodes: int, wide: bool, stops: bool) -> Bound:
    """Returns the growing shape that `auto` gives to so many nodes; 1 verifies the root alone."""
    suited = fitting(nodes, wide=wide, stops=stops) if nodes > 1 else {"depth": 1, "top_k": 1}
    return Bound(SHAPE, discover(shapes)[SHAPE], {"nodes": nodes, **suited})


def takes_budget(drafter: Drafter) -> bool:
    """True when the drafter's tree can be grown to a number of nodes."""
    return isinstance(getattr(drafter, "shape", None), Bound)


def drafter_costs(target: Target, drafter: Drafter, budgets: Sequence[int], *, repeats: int, sampled: bool = False, patience: float = inf) -> DrafterCosts:
    """Returns milliseconds by phase and node budget, at least `repeats` rounds each where the texts are long enough.

    Budget 1, the root alone, is always among them: its rule and commit are those of plain decoding. A drafter without a
    budget gets one entry, 0. The first round of a text is left out, as the prompt enters the drafter there, and every round
    that captured a graph while it drafted. After `patience` seconds LEAST rounds each are enough.
    """
    start = perf_counter()
    rotation = Rotation(sorted({1, *budgets}), drafter.wide, drafter.stops) if takes_budget(drafter) else None
    if rotation is not None:
        drafter = copy.copy(drafter)  # safe: a drafter keeps nothing of a run
        drafter.shape = rotation  # type: ignore[attr-defined]
    kept: dict[int, list[_Round]] = {nodes: [] for nodes in (rotation.budgets if rotation else (0,))}

    def enough() -> bool:
        fewest = min(map(len, kept.values()))
        return fewest >= repeats or (fewest >= LEAST and perf_counter() - start > patience)

    for run in range(MOST_RUNS):
        with closing(_rounds(target, drafter, rotation, _prompt(target, run), sampled)) as found:
            for nodes, one in found:
                kept[nodes].append(one)
                if enough():
                    break
        if enough():
            break
    rounds = {nodes: _total(each) for nodes, each in kept.items() if each}
    return DrafterCosts(drafter.name, checkpoint_of(drafter), sampled, head_weights(drafter), rounds)


class _Waiting(Clock):
    """Waits for the device at every reading, so that seconds are charged to the round they were spent in."""

    def take(self, wait: bool = True) -> dict[str, float]:
        return super().take(wait=True)


@dataclass(frozen=True)
class _Round:
    ms: dict[str, float]
    nodes: int
    steps: int
    drafted: int


def _rounds(target: Target, drafter: Drafter, rotation: Rotation | None, ids: tuple[int, ...], sampled: bool) -> Generator[tuple[int, _Round], None, None]:
    """Yields (budget, round) of one text, the first round and those with a capture left out."""
    rule, sampling, nodes, before = bind(acceptance, "rejection"), Sampling(TEMPERATURE if sampled else 0.0), 0, 0
    late = late_captures(drafter)
    for event in decode(target, drafter, rule, [Request(ids)], sampling=sampling, max_new_tokens=LONGEST, clock=_Waiting(target.device)):
        if isinstance(event, Drafted):
            nodes = len(event.tokens)
        if not isinstance(event, Verified):
            continue
        ms = {name: 1000.0 * event.seconds.get(name, 0.0) for name in PHASES}
        calls, before = (len(rotation.used) - before, len(rotation.used)) if rotation else (1, 0)
        captured, late = late_captures(drafter) - late, late_captures(drafter)
        if event.round and calls == 1 and not captured:
            yield (rotation.used[-1], _Round(ms, nodes, rotation.steps[-1], rotation.drafted[-1])) if rotation else (0, _Round(ms, nodes, 0, 0))


def late_captures(drafter: Drafter) -> int:
    """Returns how many rounds of this drafter so far had to capture a graph while they drafted."""
    return drafter.graphs.late if isinstance(drafter, HeadDrafter) else 0


def _total(found: Sequence[_Round]) -> Rounds:
    ms = {name: Spread.of([one.ms[name] for one in found]) for name in PHASES}
    nodes, steps, drafted = (sum(getattr(one, name) for one in found) / len(found) for name in ("nodes", "steps", "drafted"))
    return Rounds(ms, nodes, steps, drafted, len(found))


def _prompt(target: Target, run: int) -> tuple[int, ...]:
    """The built-in prompts in turn; random ids for a target without a tokenizer."""
    if target.tokenizer is not None:
        return tuple(target.encode(BUILT_IN[run % len(BUILT_IN)].text))
    random = Random(run)
    return tuple(random.randrange(target.vocab_size) for _ in range(24))


def checkpoint_of(drafter: Drafter) -> str | None:
    """Returns the hash of the drafter's trained weights, as its report names them; None for a drafter without any."""
    return hash_weights(drafter.folder) if isinstance(drafter, HeadDrafter) else None


def head_weights(drafter: Drafter) -> int:
    """Returns how many numbers a trained head multiplies with, its rows of the LM head included; 0 for other drafters."""
    return count_weights(drafter.module) + drafter.rows.weight.numel() if isinstance(drafter, HeadDrafter) else 0
