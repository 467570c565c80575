"""Curves of a fit, read from what the fit left in its folder: loss, held-out acceptance, and acceptance over the amount of data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from specviz.analysis.head_report import LearningPoint, Point
from specviz.errors import BadFile
from specviz.say import Say

LOG, RESULT = "log.jsonl", "result.json"
MOST = 200  # points of a curve
MARK = "-share"  # a fit of a part of the data runs in a folder NAME-shareX beside NAME


@dataclass(frozen=True)
class Curves:
    """Loss and held-out chain tau over steps, and held-out chain tau over answer tokens; empty where nothing was logged."""

    loss: tuple[Point, ...] = ()
    held_out: tuple[Point, ...] = ()
    learning: tuple[LearningPoint, ...] = ()


def read_curves(run: Path, training: Mapping[str, Any], say: Say = print) -> Curves:
    """Reads the curves of the fit in folder `run` that trained a head with these settings.

    A log of another fit would tell of another head: one that does not end at this head's last step is left out, and said so.
    Raises BadFile for a damaged file.
    """
    data = learning_from_data(run)
    if not (run / LOG).exists():
        say(f"no fit log in {run}: the report has no loss curve")
        return Curves(learning=data)
    records = {int(record["step"]): record for record in _lines(run / LOG)}  # a resumed fit logs some steps again: the later one counts
    last, steps = max(records, default=0), training.get("steps")
    if last != steps:
        say(f"the log in {run} ends at step {last}, this head was trained for {steps}: it is another fit's, so the report has no curves from it")
        return Curves()
    ordered = [records[step] for step in sorted(records)]
    held = [Point(int(r["step"]), float(r["chain_tau"])) for r in ordered if "chain_tau" in r]
    return Curves(averaged([Point(int(r["step"]), float(r["loss"])) for r in ordered]), thinned(held), (*data, *learning_on_the_way(held, training)))


def averaged(points: Sequence[Point], most: int = MOST) -> tuple[Point, ...]:
    """Returns at most `most` points, each the mean of its neighbours, at the last step that it speaks of."""
    if len(points) <= most:
        return tuple(points)
    edges = [round(place * len(points) / most) for place in range(most + 1)]
    groups = [points[a:b] for a, b in pairwise(edges)]
    return tuple(Point(group[-1].step, round(sum(point.value for point in group) / len(group), 5)) for group in groups)


def thinned(points: Sequence[Point], most: int = MOST) -> tuple[Point, ...]:
    """Returns at most `most` of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return tuple(points)
    return tuple(points[round(place * (len(points) - 1) / (most - 1))] for place in range(most))


def learning_from_data(run: Path) -> tuple[LearningPoint, ...]:
    """Returns chain tau over answer tokens of the fit in `run` and of those on a part of its data, smallest first.

    Nothing when the fit in `run` stands alone: one point is no curve.
    """
    whole = run / RESULT
    parts = sorted(run.parent.glob(f"{run.name}{MARK}*/{RESULT}"))
    if not whole.exists() or not parts:
        return ()
    found = [_json(path) for path in (*parts, whole)]
    try:
        points = {LearningPoint(int(r["answer_tokens"]), round(float(r["chain_tau"]), 4), "data", r.get("epochs")) for r in found}
    except (KeyError, TypeError, ValueError) as problem:
        raise BadFile(f"A {RESULT} of {run} or beside it is damaged ({problem}). Run that fit again.") from problem
    return tuple(sorted(points, key=lambda point: point.tokens))


def learning_on_the_way(held_out: Sequence[Point], training: Mapping[str, Any]) -> tuple[LearningPoint, ...]:
    """Returns chain tau over answer tokens seen so far; every step of an epoch sees about as many."""
    steps, tokens, epochs = (training.get(name) for name in ("steps", "answer_tokens", "epochs"))
    if not steps or not tokens or not epochs or training.get("stop_after"):  # a fit that was stopped early saw less than its epochs
        return ()
    return tuple(LearningPoint(round(point.step / steps * tokens * epochs), point.value, "training") for point in thinned(held_out))


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [record for record in found if float(record["loss"]) == float(record["loss"]) and int(record["step"]) >= 0]
    except (KeyError, TypeError, ValueError, OSError) as problem:
        raise BadFile(f"{path} is no log of a fit ({problem}). Give --fit another folder.") from problem


def _json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise BadFile(f"{path} is damaged ({problem}). Run that fit again.") from problem
    if not isinstance(record, dict):
        raise BadFile(f"{path} is no JSON object. Run that fit again.")
    return record
