"""Measures a trained head on text it never saw, without running the target, and writes its model card."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specviz.build import build_drafter, parse_spec
from specviz.drafters.base import Drafter, Feedback
from specviz.drafters.heads import CONFIG, WEIGHTS
from specviz.sampling import Sampling, Uniform
from specviz.training.data import held_out
from specviz.training.features import Capture, open_capture
from specviz.tree import TokenTree

Say = Callable[[str], None]
DEPTHS = 8


@dataclass(frozen=True)
class Replayed:
    """What a drafter reached on recorded greedy text: tokens per round, and acceptance per depth given that the parent was accepted.

    `reached[d]` counts rounds that accepted depth d and had a candidate below it, `accepted[d]` those that accepted one (d from 0).
    """

    rounds: int
    tokens: int
    reached: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def tau(self) -> float:
        return self.tokens / max(1, self.rounds)

    @property
    def acceptance(self) -> tuple[float, ...]:
        return tuple(round(a / r, 4) for a, r in zip(self.accepted, self.reached, strict=True) if r)

    def __add__(self, other: Replayed) -> Replayed:
        reached = tuple(map(sum, zip(self.reached, other.reached, strict=True)))
        accepted = tuple(map(sum, zip(self.accepted, other.accepted, strict=True)))
        return Replayed(self.rounds + other.rounds, self.tokens + other.tokens, reached, accepted)


def replay(drafter: Drafter, ids: Sequence[int], prompt: int, states: Mapping[int, torch.Tensor]) -> Replayed:
    """Lets the drafter draft along recorded greedy text `ids` with the target's recorded `states` `[len(ids), hidden]` per tap.

    Equals a real run at temperature 0 up to fp16 rounding of the states; its last rounds are left out where the record ends.
    """
    reached, accepted = [0] * DEPTHS, [0] * DEPTHS
    root, rounds, known = prompt, 0, 0
    path: tuple[int, ...] = ()
    flow = None
    while root + DEPTHS < len(ids):
        hidden = {tap: rows[known:root] for tap, rows in states.items()}
        seen = [Feedback(0, ids[: root + 1], path, hidden, None, Sampling(), Uniform(0), DEPTHS - 1)]
        if flow is None:
            flow = drafter.draft(seen)
            (tree,) = next(flow)
        else:
            (tree,) = flow.send(seen)
        path = _follow(tree, ids, root, reached, accepted)
        known, root, rounds = root, root + len(path) + 1, rounds + 1
    if flow is not None:
        flow.close()
    return Replayed(rounds, root - prompt, tuple(reached), tuple(accepted))


def _follow(tree: TokenTree, ids: Sequence[int], root: int, reached: list[int], accepted: list[int]) -> tuple[int, ...]:
    """Walks down the tree along the text and counts where it ends."""
    children: dict[int, dict[int, int]] = {}
    for node in range(1, len(tree)):
        children.setdefault(tree.parents[node], {}).setdefault(tree.tokens[node], node)
    node = 0
    path: list[int] = []
    while node in children:
        reached[len(path)] += 1
        following = children[node].get(ids[root + len(path) + 1])
        if following is None:
            break
        accepted[len(path)] += 1
        node = following
        path.append(node)
    return tuple(path)


def report(spec: str, features: Path, target: Any, *, limit: int | None = None, card: bool = True, measured: Sequence[str] = (), say: Say = print) -> Replayed:
    """Replays the drafter of `spec` (for example `eagle@dynamic:nodes=24`) over held-out greedy records; updates its model card.

    Held out is what the fit of this head held out, by its config; `measured` are lines for the card about runs made elsewhere.
    Raises Missing when the head or the features are not there.
    """
    drafter: Any = build_drafter(target, parse_spec(spec))  # a learned one: it has config and folder
    capture = open_capture(features)
    found = _replay_all(drafter, capture, drafter.config.training.get("held_out", 0.05), limit)
    say(f"{spec}: tau {found.tau:.3f} over {found.rounds} rounds; acceptance per depth {list(found.acceptance)}")
    if card:
        write_card(drafter.folder, spec, found, measured)
    return found


def _replay_all(drafter: Drafter, capture: Capture, share: float, limit: int | None) -> Replayed:
    total, used = Replayed(0, 0, (0,) * DEPTHS, (0,) * DEPTHS), 0
    for shard in capture.done():
        row = 0
        stores = {tap: capture.rows(shard, tap) for tap in drafter.taps}
        for record in capture.records(shard):
            first, row = row, row + len(record.ids)
            if record.temperature or not held_out(record, share) or used == limit:
                continue
            states = {tap: torch.from_numpy(store[first:row].astype("float32")) for tap, store in stores.items()}
            total, used = total + replay(drafter, record.ids, record.answer_start, states), used + 1
    return total


def write_card(folder: Path, spec: str, found: Replayed, measured: Sequence[str] = ()) -> None:
    """Writes README.md beside a head: what it is, how it was trained, what it reached. Every number is read or measured, none is typed in."""
    raw = json.loads((folder / CONFIG).read_text())
    training, size = raw["training"], (folder / WEIGHTS).stat().st_size
    rows = "\n".join(f"| {depth} | {share:.3f} |" for depth, share in enumerate(found.acceptance, 1))
    settings = "\n".join(f"| {name} | {value} |" for name, value in training.items())
    text = f"""# {raw["method"]} head for {folder.parent.name}

A draft head, not a language model: it needs its target, whose LM-head rows it shares. {size / 1e6:.1f} MB in fp16, draft vocabulary
of {raw["sizes"]["draft_vocab"]} tokens. Target fingerprint: `{raw["target"]["weights"]}`.

## Data
Answers that the target wrote itself, greedily and sampled (data hash `{training.get("data", "unknown")}`).
{training.get("held_out", 0.0):.0%} of the prompts were held out.

## Measured
On held-out greedy answers, `{spec}`, temperature 0: **tau {found.tau:.3f}** tokens per target forward, over {found.rounds} rounds.

| depth | acceptance, given that the parent was accepted |
|---|---|
{rows}
"""
    text += "".join(f"\n{line}\n" for line in measured)
    text += f"\n## Training\n| setting | value |\n|---|---|\n{settings}\n"
    (folder / "README.md").write_text(text, encoding="utf-8")
