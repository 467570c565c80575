"""Writes training data: the target answers prompts itself, so that a head learns what this target will say."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specviz.errors import BadInput
from specviz.prompts import Prompt, read_prompts
from specviz.say import Say
from specviz.training.data import Record
from specviz.training.writer import Ask, write

SELF = "self"  # prompt_source of prompts that the target wrote itself


@dataclass(frozen=True)
class Writing:
    """How answers are written; a shard of records depends on these and on its number alone."""

    temperatures: tuple[float, ...] = (0.0, 0.0, 0.7, 1.0)  # dealt out in turn, so half of the answers are greedy
    max_new_tokens: int = 300
    prompt_tokens: int = 96  # of a prompt that the target writes itself
    batch: int = 64
    per_shard: int = 384
    seed: int = 0


def distil(
    target: Any, prompts: Sequence[Path], out: Path, *, own: int = 0, writing: Writing | None = None, most: int | None = None, say: Say = print
) -> list[Path]:
    """Lets `target` answer the prompts of files and `own` prompts that it writes itself; returns the JSONL shards.

    Only prompts that no evaluation uses belong here. A shard that exists is kept, so an interrupted run goes on where it
    stopped; with `most` it stops after so many shards. Records are {ids, answer_start, temperature, prompt_source}, ids as the
    target wrote them, never re-tokenised.
    Raises BadInput when there is nothing to answer or the target has no chat template.
    """
    writing = writing or Writing()
    if not getattr(target.tokenizer, "chat_template", None):
        raise BadInput(f"{target.name} has no chat template, so its user turns are unknown. Distil from an instruction-tuned target.")
    given: list[Prompt | None] = [prompt for path in prompts for prompt in read_prompts(path)] + [None] * own
    if not given:
        raise BadInput("There is nothing to answer: give prompt files, or a number of prompts that the target writes itself.")
    random.Random(writing.seed).shuffle(given)
    out.mkdir(parents=True, exist_ok=True)
    shards = []
    for number in range(-(-len(given) // writing.per_shard))[:most]:
        path = out / f"{number:04d}.jsonl"
        if not path.exists():
            records = _shard(target, given[number * writing.per_shard : (number + 1) * writing.per_shard], writing, number)
            scratch = path.with_suffix(".part")
            scratch.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records), encoding="utf-8")
            os.replace(scratch, path)
            say(f"{path.name}: {len(records)} records, {sum(len(r.answer) for r in records)} answer tokens")
        shards.append(path)
    return shards


def _shard(target: Any, given: Sequence[Prompt | None], writing: Writing, number: int) -> list[Record]:
    seed = writing.seed * 100_003 + number
    questions = [(target.encode(prompt.text), Path(prompt.name).parts[0]) for prompt in given if prompt is not None]
    questions += [(ids, SELF) for ids in _write_prompts(target, sum(prompt is None for prompt in given), writing, seed)]
    dealt = [writing.temperatures[turn % len(writing.temperatures)] for turn in range(len(questions))]
    asks = [Ask(ids, temperature, writing.max_new_tokens) for (ids, _), temperature in zip(questions, dealt, strict=True)]
    answers = write(target, asks, seed=seed, batch=writing.batch)
    return [Record((*ids, *answer), len(ids), ask.temperature, source) for (ids, source), ask, answer in zip(questions, asks, answers, strict=True)]


def _write_prompts(target: Any, count: int, writing: Writing, seed: int) -> list[list[int]]:
    """Lets the target finish the user turn of its own chat template, at temperature 1; returns whole prompts as ids."""
    if not count:
        return []
    head, tail = _user_turn(target)
    turns = write(target, [Ask(head, 1.0, writing.prompt_tokens)] * count, seed=~seed, batch=writing.batch)
    # a turn without an end is no question, and one of two tokens says nothing
    return [[*head, *ids[:-1], *tail] for ids in turns if ids[-1] in target.eos and len(ids) > 3]


def _user_turn(target: Any) -> tuple[list[int], list[int]]:
    """Returns the template's ids before and after the text of a user turn."""
    one, other = target.encode("a"), target.encode("b")
    differing = [place for place, (x, y) in enumerate(zip(one, other, strict=True)) if x != y]
    return list(one[: differing[0]]), list(one[differing[-1] + 1 :])
