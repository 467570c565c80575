"""Measures a trained head: on fixed greedy text without running the target, and a part of it again by real decoding."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specviz import shapes
from specviz.analysis.head_report import MAIN_NODES, SIZES, Checked, Greedy, HeadReport, Misses, ReportTarget, ReportText, Sampled
from specviz.analysis.summary import Summary, summarise
from specviz.build import Spec, build_rule, load_drafter, shaped
from specviz.decode import Request, decode
from specviz.drafters.head_file import hash_weights
from specviz.drafters.heads import HeadDrafter
from specviz.errors import BadInput, SpecvizError
from specviz.registry import AUTO, discover, knobs
from specviz.sampling import Sampling
from specviz.say import Say
from specviz.trace import Trace
from specviz.training.curves import Curves, read_curves
from specviz.training.fixed_text import FixedText, keep_states
from specviz.training.greedy_text import GreedyText, captured_texts
from specviz.training.replay import Replayed, replay

if TYPE_CHECKING:
    from specviz.target import Target

RULE = "rejection"  # lossless at every temperature


@dataclass(frozen=True)
class Measures:
    """How much is measured: sizes of growing trees, prompts of the check by real decoding, temperatures and their prompts (0: none)."""

    nodes: tuple[int, ...] = SIZES
    checked: int = 10
    sampled: int = 20
    temperatures: tuple[float, ...] = (0.7, 1.0)


def head_report(
    target: Target,
    spec: Spec,
    text: FixedText,
    *,
    measures: Measures | None = None,
    fit: Path | None = None,
    evaluation: Mapping[str, float] | None = None,
    say: Say = print,
) -> HeadReport:
    """Measures the head of `spec` on `text`; the curves come from the folder `fit`.

    A spec without a shape is measured with every shape that fits the drafter. Raises BadInput for a drafter without a trained
    head, Missing where the head is not there.
    """
    measures, started = measures or Measures(), time.monotonic()
    head = load_head_drafter(target, spec)
    keep_states(target, text, head.taps, say)
    measured = _measure_all(head, [spec] if spec.shape or spec.shape_knobs else specs_of(spec, measures.nodes), text, say)
    main = next((one for one in measured if one.grown_to == MAIN_NODES), measured[-1])
    curves = Curves() if fit is None else read_curves(fit, head.config.training, say)
    answers = [token for one in text.answers for token in one.answer]
    return HeadReport(
        spec.drafter,
        ReportTarget(target.name, target.fingerprint.weights),
        hash_weights(head.folder),
        datetime.now(UTC).date().isoformat(),
        text=ReportText(text.name, len(text.answers), len(answers), text.max_new_tokens, text.hash),
        greedy=tuple(one.greedy(text) for one in measured),
        checked=_check(target, main, text, measures.checked, say) if measures.checked else None,
        sampled=tuple(_sample(target, main, text, heat, measures.sampled, say) for heat in measures.temperatures if measures.sampled),
        misses=Misses(len(answers), int((~torch.isin(torch.tensor(answers), head.rows.vocabulary.cpu())).sum())),
        calibration=main.total.calibration,
        loss=curves.loss,
        held_out=curves.held_out,
        learning_curve=curves.learning,
        training=dict(head.config.training),
        evaluation=None if evaluation is None else dict(evaluation),
        seconds=round(time.monotonic() - started, 1),
    )


def load_head_drafter(target: Target, spec: Spec) -> HeadDrafter:
    """Returns the drafter of `spec` with its weights, whatever its tree; raises BadInput when it has no trained head."""
    drafter = load_drafter(target, spec)
    if not isinstance(drafter, HeadDrafter):
        raise BadInput(f"Drafter {spec.drafter!r} has no trained head to report on.")
    return drafter


def specs_of(spec: Spec, sizes: Sequence[int]) -> list[Spec]:
    """Returns the spec with every shape: those of a fixed form once, those that grow to a number of nodes once per size.

    What depends on the number of nodes (depth, width) is left to `auto`, but no tree stops by itself: that saves time, not rounds.
    """
    fixed, grown = list[Spec](), list[Spec]()
    for name, shape in discover(shapes).items():
        if any(knob.name == "file" for knob in knobs(shape)):  # a tree searched for one drafter says nothing about another
            continue
        if all(knob.name != "nodes" for knob in knobs(shape)):
            fixed.append(replace(spec, shape=name))
        else:
            fitting = {knob.name: AUTO for knob in knobs(shape) if knob.auto and knob.name != "stop_below"}
            grown += [replace(spec, shape=name, shape_knobs=fitting | {"nodes": size}) for size in sizes]
    return fixed + grown


def shown(drafter: HeadDrafter) -> str:
    """Returns the spec that draws this drafter's trees on any machine: no checkpoint's place, and of the shape what is not its default."""
    name, values = drafter.shape.name, drafter.shape.values
    kept = {knob.name: values[knob.name] for knob in knobs(discover(shapes)[name]) if values[knob.name] != knob.default or knob.name == "nodes"}
    return str(Spec(drafter.name, name, {}, kept))


@dataclass(frozen=True)
class _Measured:
    """One tree shape over the fixed text, answer by answer."""

    drafter: HeadDrafter
    answers: tuple[Replayed, ...]

    @property
    def spec(self) -> str:
        return shown(self.drafter)

    @property
    def grown_to(self) -> int | None:
        """The size that the tree grows to, None for a shape of a fixed form."""
        found: int | None = self.drafter.shape.values.get("nodes")
        return found

    @property
    def total(self) -> Replayed:
        return _sum(self.answers)

    def greedy(self, text: FixedText) -> Greedy:
        kinds = sorted({one.category for one in text.answers})
        by_kind = {kind: _sum([found for found, one in zip(self.answers, text.answers, strict=True) if one.category == kind]) for kind in kinds}
        categories = {kind: round(found.tau, 4) for kind, found in by_kind.items() if found.rounds}
        total, counts = self.total, self.total.by_depth
        nodes = self.grown_to or total.nodes
        return Greedy(self.drafter.shape.name, self.spec, nodes, round(total.tau, 4), total.rounds, counts.tested, counts.accepted, categories)


def _sum(found: Sequence[Replayed]) -> Replayed:
    return reduce(add, found, Replayed())


def _measure_all(head: HeadDrafter, specs: Sequence[Spec], text: FixedText, say: Say) -> list[_Measured]:
    measured, told = list[_Measured](), set[str]()
    for spec in specs:
        try:
            drafter = shaped(head, spec)
            if not isinstance(drafter, HeadDrafter):
                raise BadInput("it came out as plain decoding")
            measured.append(_Measured(drafter, replay_text(drafter, text)))
        except SpecvizError as problem:
            if len(specs) == 1:
                raise
            if str(problem) not in told:  # once for all sizes of a shape
                say(f"shape {spec.shape} is left out: {problem}")
            told.add(str(problem))
            continue
        total = measured[-1].total
        say(f"{measured[-1].spec}: tau {total.tau:.3f} over {total.rounds} rounds; acceptance per depth {list(total.acceptance)}")
    if not measured:
        raise BadInput(f"No tree shape fits drafter {head.name!r}, so there is nothing to report.")
    return measured


def replay_text(drafter: HeadDrafter, text: FixedText) -> tuple[Replayed, ...]:
    """Replays every answer of a fixed text whose states were captured."""
    return tuple(replay(drafter, one.ids, one.prompt, text.states(place, drafter.taps), one.limit) for place, one in enumerate(text.answers))


def _check(target: Target, main: _Measured, text: FixedText, count: int, say: Say) -> Checked:
    places = spread(len(text.answers), count)
    off_line = _sum([main.answers[place] for place in places])
    decoded = _decode(target, main.drafter, text, places, Sampling())
    found = Checked(main.spec, len(places), round(off_line.tau, 4), round(decoded.tau or 0.0, 4))
    say(f"checked by decoding {found.prompts} prompts: tau {found.decoded:.3f}, off line {found.off_line:.3f}")
    return found


def _sample(target: Target, main: _Measured, text: FixedText, heat: float, count: int, say: Say) -> Sampled:
    places = spread(len(text.answers), count)
    found = _decode(target, main.drafter, text, places, Sampling(heat))
    say(f"{main.spec} at temperature {heat:g}, {len(places)} prompts: tau {found.tau or 0.0:.3f}")
    depths = found.by_depth
    return Sampled(heat, main.spec, main.grown_to or main.total.nodes, len(places), round(found.tau or 0.0, 4), depths.tested, depths.accepted)


def _decode(target: Target, drafter: HeadDrafter, text: FixedText, places: Sequence[int], sampling: Sampling) -> Summary:
    """Really decodes some of the prompts, one after another; the seed of each is its place, so that no two share their luck."""
    rule, total = build_rule(RULE), Summary()
    for place in places:
        trace, request = Trace(), Request(text.answers[place].question)
        run = decode(target, drafter, rule, [request], sampling=replace(sampling, seed=place), max_new_tokens=text.max_new_tokens)
        for _ in trace.record(run):
            pass
        total += summarise(trace)
    return total


def spread(size: int, count: int) -> list[int]:
    """Returns up to `count` places of `size`, evenly spread, so that every kind of prompt has its share."""
    count = min(size, count)
    return [place * size // count for place in range(count)]


def held_out_replay(drafter: HeadDrafter, folders: Sequence[Path], limit: int | None = None) -> Replayed:
    """Replays greedy records that the fit of this head held out, by its config; `limit` takes the first so many."""
    return _sum([_replay_record(drafter, text) for text in captured_texts(folders, drafter, limit)])


def _replay_record(drafter: HeadDrafter, text: GreedyText) -> Replayed:
    # an answer that ended by itself might have gone on: its last drafts were not cut by a limit
    most = len(text.ids) if text.ids[-1] in drafter.target.eos else len(text.ids) - text.start
    return replay(drafter, text.ids, text.start, text.states, most)
