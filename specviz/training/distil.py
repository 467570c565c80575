"""Writes training data: the target answers prompts itself, so that a head learns what this target will say."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from specviz.errors import BadInput
from specviz.prompts import Prompt, read_prompts
from specviz.training.data import Record

Say = Callable[[str], None]
SELF = "self"  # prompt_source of prompts that the target wrote itself


@dataclass(frozen=True)
class Writing:
    """How answers are written; a shard of records depends on these and on its number alone."""

    temperatures: tuple[float, ...] = (0.0, 0.0, 0.7, 1.0)  # dealt out in turn, so half of the answers are greedy
    max_new_tokens: int = 300
    prompt_tokens: int = 96  # of a prompt that the target writes itself
    batch: int = 32
    per_shard: int = 128
    seed: int = 0


def distil(target: Any, prompts: Sequence[Path], out: Path, *, own: int = 0, writing: Writing | None = None, say: Say = print) -> list[Path]:
    """Lets `target` answer the prompts of files and `own` prompts that it writes itself; returns the JSONL shards.

    Only prompts that no evaluation uses belong here. A shard that exists is kept, so an interrupted run goes on where it
    stopped. Records are {ids, answer_start, temperature, prompt_source}, ids as the target wrote them, never re-tokenised.
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
    for number in range(-(-len(given) // writing.per_shard)):
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
    torch.manual_seed(writing.seed * 100_003 + number)
    questions = [(target.encode(prompt.text), Path(prompt.name).parts[0]) for prompt in given if prompt is not None]
    questions += [(ids, SELF) for ids in _write_prompts(target, sum(prompt is None for prompt in given), writing)]
    records = []
    for turn, temperature in enumerate(writing.temperatures):
        mine = sorted(questions[turn :: len(writing.temperatures)], key=lambda pair: len(pair[0]))
        for start in range(0, len(mine), writing.batch):
            part = mine[start : start + writing.batch]
            answers = generate(target, [ids for ids, _ in part], temperature, writing.max_new_tokens)
            records += [Record((*ids, *answer), len(ids), temperature, source) for (ids, source), answer in zip(part, answers, strict=True) if answer]
    return records


def _write_prompts(target: Any, count: int, writing: Writing) -> list[list[int]]:
    """Lets the target finish the user turn of its own chat template, at temperature 1; returns whole prompts as ids."""
    head, tail = _user_turn(target)
    written: list[list[int]] = []
    for start in range(0, count, writing.batch):
        size = min(writing.batch, count - start)
        for ids in generate(target, [head] * size, 1.0, writing.prompt_tokens):
            ended = bool(ids) and ids[-1] in target.eos
            if ended and len(ids) > 3:  # a turn without an end is no question, one of two tokens says nothing
                written.append([*head, *ids[:-1], *tail])
    return written


def _user_turn(target: Any) -> tuple[list[int], list[int]]:
    """Returns the template's ids before and after the text of a user turn."""
    one, other = target.encode("a"), target.encode("b")
    differing = [place for place, (x, y) in enumerate(zip(one, other, strict=True)) if x != y]
    return list(one[: differing[0]]), list(one[differing[-1] + 1 :])


@torch.inference_mode()
def generate(target: Any, prompts: Sequence[Sequence[int]], temperature: float, max_new_tokens: int) -> list[list[int]]:
    """Returns the target's continuation of every prompt, its end token included where it was reached; padded on the left."""
    longest = max(len(ids) for ids in prompts)
    end = min(target.eos)
    ids = torch.tensor([[end] * (longest - len(p)) + list(p) for p in prompts], device=target.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=target.device)
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {"do_sample": False}
    written = target.model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=max_new_tokens, eos_token_id=sorted(target.eos), pad_token_id=end, **sampling
    )
    return [_until_end(row, target.eos) for row in written[:, longest:].tolist()]


def _until_end(ids: list[int], ends: frozenset[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids
