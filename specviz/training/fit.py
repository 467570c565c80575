"""Fits a head: from captured features to a checkpoint. It knows no method by name."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from specviz.drafters.head_file import HeadCheckpoint, HeadConfig, fill, hash_weights, load_head, save_head
from specviz.drafters.heads import draft_rows
from specviz.errors import BadInput
from specviz.say import Say, silent
from specviz.sources import DEFAULT_TARGET, Fingerprint, locate, models_dir
from specviz.training.data import Record, check_tokens, draft_vocabulary
from specviz.training.dataset import Dataset
from specviz.training.features import Capture, open_captures
from specviz.training.loop import Loop, Plan
from specviz.training.methods.base import Frozen, Lesson
from specviz.training.workers import Workers

__all__ = ["Fitted", "Plan", "draft_ids", "fit", "freeze"]


@dataclass(frozen=True)
class Fitted:
    """The result of a fit: where the head lies and its held-out chain acceptance per depth."""

    folder: Path
    steps: int
    seconds: float
    acceptance: tuple[float, ...]
    chain_tau: float


def fit(
    method: str,
    features: Path | Sequence[Path],
    *,
    target: str = DEFAULT_TARGET,
    out: Path | None = None,
    run: Path | None = None,
    plan: Plan | None = None,
    knobs: Mapping[str, Any] | None = None,
    start: Path | None = None,
    say: Say = print,
) -> Fitted:
    """Trains the head of `method` on captured features (one folder or several) and saves it to `out` (default: below the target in models/).

    `run` keeps the log and the state that an interrupted fit resumes from; `start` is a head of the same sizes to begin from,
    whose draft vocabulary is kept. Raises BadInput for an unknown method.
    """
    plan = plan or Plan()
    folder = Path(locate(target))
    captures = open_captures(features, folder)
    workers = Workers(plan.precision)
    say = say if workers.first else silent
    earlier = None if start is None else load_head(start, method)
    frozen = freeze(folder, captures, plan.draft_vocab, None if earlier is None else earlier.vocabulary)
    torch.manual_seed(plan.seed)
    lesson = _lesson(method, frozen, knobs or {})
    if earlier is not None:
        _begin_from(earlier, lesson)
    dataset = _dataset(captures, lesson, plan, say)
    with workers.first_alone():
        dataset.teach(frozen.rows.to(workers.device))
    settings = fit_settings(method, captures, plan, knobs or {}, start)
    loop = Loop(lesson, dataset, plan, run or Path("runs/fit") / method, workers=workers, settings=settings, say=say)
    seconds = loop.run()
    hits = loop.measure()
    fitted = Fitted(out or models_dir() / folder.name / method, loop.step, seconds, tuple(hits.conditional()), hits.chain_tau())
    gone = {
        "draft_vocab": len(frozen.vocabulary),
        "epochs": round(loop.step / loop.total * plan.epochs, 2) if plan.within else plan.epochs,
        "data": settings["data"],
        "seconds": round(seconds),
        "steps": loop.step,
        "answer_tokens": sum(len(item.record.answer) for item in dataset.train),
        "held_out_acceptance": [round(share, 4) for share in fitted.acceptance],
    }
    asked = {name: value for name, value in asdict(plan).items() if gone.get(name, value) != value}
    training = asdict(plan) | dict(knobs or {}) | ({"start": settings["start"]} if start else {}) | gone | ({"asked": asked} if asked else {})
    if workers.first:
        _save(fitted, lesson, Fingerprint(captures[0].fingerprint.weights), training, loop.folder)
    say(f"saved {fitted.folder}; held-out acceptance per depth {gone['held_out_acceptance']}, chain tau {fitted.chain_tau:.3f}")
    return fitted


def fit_settings(method: str, captures: Sequence[Capture], plan: Plan, knobs: Mapping[str, Any], start: Path | None) -> dict[str, Any]:
    """Returns all that decides the weights of a fit; the head that it begins from by the hash of its weights."""
    data = "+".join(capture.data for capture in captures)
    begun = None if start is None else hash_weights(start)
    return {"method": method, "target": captures[0].fingerprint.weights, "data": data, "knobs": dict(knobs), "start": begun, **asdict(plan)}


def _dataset(captures: Sequence[Capture], lesson: Lesson, plan: Plan, say: Say) -> Dataset:
    """Returns the records of all captures, split; raises BadInput when a part of the split is empty."""
    frozen = lesson.frozen
    dataset = Dataset(captures, lesson.taps, frozen.vocabulary, len(frozen.embedding), plan.held_out, plan.data_share)
    weights = sum(p.numel() for p in lesson.module.parameters())
    say(f"{len(dataset.train)} records to train on, {len(dataset.held_out)} held out; {weights / 1e6:.2f} M weights")
    if not dataset.train or not dataset.held_out:
        raise BadInput(
            f"Of the captured records {len(dataset.train)} are left to train on and {len(dataset.held_out)} held out; both are needed. "
            f"Give more data, or another held_out (it is {plan.held_out})."
        )
    return dataset


def _save(fitted: Fitted, lesson: Lesson, target: Fingerprint, training: Mapping[str, Any], run: Path) -> None:
    """Writes the head, and beside the fit's log what a learning curve is drawn from."""
    save_head(fitted.folder, HeadConfig(lesson.method, lesson.sizes(), target, training), lesson.module, lesson.frozen.vocabulary)
    told = {name: training[name] for name in ("epochs", "answer_tokens", "data_share")}
    (run / "result.json").write_text(json.dumps(asdict(fitted) | {"folder": str(fitted.folder), "method": lesson.method} | told, indent=1) + "\n")


def freeze(folder: Path, captures: Sequence[Capture], draft_vocab: int, vocabulary: torch.Tensor | None = None) -> Frozen:
    """Reads what training needs of the target, in fp32; a draft vocabulary that is not given is counted over the captured records."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).requires_grad_(False)
    if vocabulary is None:
        records = [record for capture in captures for n in capture.done() for record in capture.records(n)]
        vocabulary = draft_ids(records, model.config, draft_vocab)
    rows = draft_rows(model.get_output_embeddings(), vocabulary)
    norm = getattr(getattr(model.get_decoder(), "norm", None), "weight", torch.ones(rows.shape[1]))
    return Frozen(model.config, model.get_input_embeddings().weight.detach(), rows, vocabulary, norm.detach().clone())


def draft_ids(records: Sequence[Record], config: Any, size: int) -> torch.Tensor:
    """Returns the token ids `[size]` of the draft vocabulary of these records, the target's end tokens always among them."""
    check_tokens(records, config.get_text_config(decoder=True).vocab_size)
    ends = config.eos_token_id
    return torch.tensor(draft_vocabulary(records, size, ends if isinstance(ends, list) else [ends]))


def _lesson(method: str, frozen: Frozen, knobs: Mapping[str, Any]) -> Lesson:
    name = f"specviz.training.methods.{method}"
    if not method.isidentifier() or importlib.util.find_spec(name) is None:
        raise BadInput(f"No training for {method!r}; expected the name of a file in specviz/training/methods.")
    lesson: Lesson = importlib.import_module(name).lesson(frozen, **knobs)
    return lesson


def _begin_from(earlier: HeadCheckpoint, lesson: Lesson) -> None:
    """Puts an earlier head's weights into the lesson's module; raises BadInput naming the first size that differs."""
    made, held = json.loads(json.dumps(lesson.sizes())), earlier.config.sizes
    for name in made:
        if held.get(name) != made[name]:
            raise BadInput(f"The head in {earlier.folder} has {name}={held.get(name)!r}, this fit makes {made[name]!r}. Start from a head of the same sizes.")
    fill(lesson.module, earlier).train().requires_grad_(True)
