"""The fixed text of a report: the target's greedy answers to some prompts, written once, with the states that drafters read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from specviz.errors import BadFile, BadInput
from specviz.prompts import read_prompts
from specviz.say import Say
from specviz.training.writer import Ask, write

if TYPE_CHECKING:
    from specviz.target import Target

TEXT = "text.json"
OTHER = "other"  # category of prompts whose file names none


@dataclass(frozen=True)
class Question:
    """One prompt as token ids, with the kind of prompt it is."""

    ids: tuple[int, ...]
    category: str = OTHER


@dataclass(frozen=True)
class Answered:
    """A prompt with the target's greedy answer: `ids[prompt:]` is the answer, `limit` the most tokens it might have had."""

    ids: tuple[int, ...]
    prompt: int
    limit: int
    category: str

    @property
    def question(self) -> tuple[int, ...]:
        return self.ids[: self.prompt]

    @property
    def answer(self) -> tuple[int, ...]:
        return self.ids[self.prompt :]


@dataclass(frozen=True)
class FixedText:
    """Answers in the order of their prompts; the states of all tokens lie one after another in one file a tap."""

    folder: Path
    name: str
    max_new_tokens: int
    answers: tuple[Answered, ...]

    @property
    def tokens(self) -> int:
        return sum(len(one.answer) for one in self.answers)

    @property
    def hash(self) -> str:
        """Returns a hash over the prompts: two reports with the same one speak of the same questions."""
        return _hash([one.question for one in self.answers], self.max_new_tokens)

    def states(self, place: int, taps: Sequence[int]) -> dict[int, torch.Tensor]:
        """Returns {tap: `[len(ids), hidden]` fp32} of one answer, read from disk."""
        start = sum(len(one.ids) for one in self.answers[:place])
        end = start + len(self.answers[place].ids)
        return {tap: torch.from_numpy(np.array(np.load(self.folder / f"tap{tap}.npy", mmap_mode="r")[start:end])) for tap in taps}


def read_questions(target: Target, path: Path, limit: int | None = None) -> list[Question]:
    """Returns the prompts of a file as questions in the target's chat template; their `task` is the category."""
    return [Question(tuple(target.encode(prompt.text)), prompt.task or OTHER) for prompt in read_prompts(path, limit)]


def fixed_text(target: Target, questions: Sequence[Question], name: str, *, max_new_tokens: int, out: Path, say: Say = print) -> FixedText:
    """Lets the target answer the questions greedily, or reads the answers of an earlier call; raises BadInput for no or too long prompts.

    Kept below `out` in a folder named by the target's weights, the prompts and the limit. Another target writes another text.
    """
    if not questions:
        raise BadInput("There are no prompts to report on. Give --prompts a file with at least one.")
    longest = max(len(one.ids) for one in questions)
    if longest >= target.context:
        raise BadInput(f"A prompt has {longest} tokens; {target.name} reads at most {target.context}. Shorten it.")
    key = _hash([one.ids for one in questions], max_new_tokens)
    folder = out / f"{target.fingerprint.weights}-{target.fingerprint.dtype}-{key}"
    found = _read(folder, name)
    if found is not None:
        say(f"fixed text of {len(questions)} prompts is in {folder}")
    else:
        say(f"{target.name} answers {len(questions)} prompts greedily, at most {max_new_tokens} tokens each")
        asks = [Ask(one.ids, 0.0, min(max_new_tokens, target.context - len(one.ids))) for one in questions]
        answers = write(target, asks, seed=0)
        parts = zip(questions, asks, answers, strict=True)
        found = FixedText(folder, name, max_new_tokens, tuple(Answered((*q.ids, *a), len(q.ids), ask.limit, q.category) for q, ask, a in parts))
        _save(found)
    # the cache knows ids only: another file may ask the same under other categories
    return replace(found, answers=tuple(replace(one, category=q.category) for one, q in zip(found.answers, questions, strict=True)))


def keep_states(target: Target, text: FixedText, taps: Sequence[int], say: Say = print) -> None:
    """Captures the states that `taps` name and that are not there yet, fp32 and by the serving forward, so that a replay drafts what decoding drafts."""
    missing = [tap for tap in taps if not (text.folder / f"tap{tap}.npy").exists()]
    if not missing:
        return
    total = sum(len(one.ids) for one in text.answers)
    say(
        f"capturing states: {total} tokens x {len(missing)} taps x {target.hidden_size} x 4 bytes = {total * len(missing) * target.hidden_size * 4 / 1e6:.0f} MB"
    )
    parts = {tap: text.folder / f"tap{tap}.part.npy" for tap in missing}
    stores = {tap: np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=(total, target.hidden_size)) for tap, part in parts.items()}
    row = 0
    for one in text.answers:
        hidden = target.prefill(one.ids, target.new_cache(1, len(one.ids)), 0, missing).hidden
        for tap, store in stores.items():
            store[row : row + len(one.ids)] = hidden[tap][0].float().cpu().numpy()
        row += len(one.ids)
    for tap, store in stores.items():
        store.flush()
        os.replace(parts[tap], text.folder / f"tap{tap}.npy")


def _hash(prompts: Sequence[Sequence[int]], max_new_tokens: int) -> str:
    return hashlib.sha256(json.dumps([[list(ids) for ids in prompts], max_new_tokens]).encode()).hexdigest()[:16]


def _read(folder: Path, name: str) -> FixedText | None:
    if not (folder / TEXT).exists():
        return None
    try:
        raw = json.loads((folder / TEXT).read_text(encoding="utf-8"))
        answers = tuple(_answered(one) for one in raw["answers"])
        return FixedText(folder, name, int(raw["max_new_tokens"]), answers)
    except (KeyError, TypeError, ValueError) as problem:
        raise BadFile(f"{folder / TEXT} is damaged ({problem}). Delete the folder; the text is written again.") from problem


def _answered(raw: dict[str, Any]) -> Answered:
    return Answered(tuple(raw["ids"]), int(raw["prompt"]), int(raw["limit"]), str(raw["category"]))


def _save(text: FixedText) -> None:
    text.folder.mkdir(parents=True, exist_ok=True)
    scratch = text.folder / f"{TEXT}.part"
    scratch.write_text(json.dumps({"max_new_tokens": text.max_new_tokens, "answers": [asdict(one) for one in text.answers]}), encoding="utf-8")
    os.replace(scratch, text.folder / TEXT)
