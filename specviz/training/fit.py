"""The training loop: accelerate, AdamW, cosine with warm-up, resumable. It knows no method by name."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from specviz.drafters.heads import HeadConfig, save_head
from specviz.errors import BadInput
from specviz.sources import DEFAULT_TARGET, Fingerprint, hash_folder, locate, models_dir
from specviz.training.data import draft_vocabulary
from specviz.training.dataset import Dataset, Item, shuffled_batches
from specviz.training.features import Capture, open_capture
from specviz.training.methods.base import Frozen, Hits, Lesson
from specviz.training.state import load_state, save_state

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The hyper-parameters of a fit; all of them go into the checkpoint's config."""

    epochs: int = 8
    rate: float = 1e-3
    warm_up: int = 100  # steps
    tokens: int = 2048  # per step, padding included
    clip: float = 0.5
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    held_out: float = 0.05
    data_share: float = 1.0  # of the training records, chosen by the hash of their prompt: for learning curves
    draft_vocab: int = 8192
    precision: str = "bf16"  # of the matrix products; the weights stay fp32
    seed: int = 0
    measure_every: int = 500  # steps
    save_every: int = 500  # steps
    stop_after: int | None = None  # steps; a test or a short trial ends early


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
    say: Say = print,
) -> Fitted:
    """Trains the head of `method` on captured features (one folder or several) and saves it to `out` (default: below the target in models/).

    `run` keeps the log and the state that an interrupted fit resumes from. Raises BadInput for an unknown method.
    """
    plan = plan or Plan()
    folder = Path(locate(target))
    captures = [open_capture(path) for path in ([features] if isinstance(features, Path) else features)]
    weights = hash_folder(folder)
    for capture in captures:
        if weights != capture.fingerprint.weights:
            raise BadInput(f"The features in {capture.folder} were captured from {capture.fingerprint.weights}, but {target!r} is {weights}. Capture again.")
    frozen = freeze(folder, captures, plan.draft_vocab)
    torch.manual_seed(plan.seed)
    lesson = _lesson(method, frozen, knobs or {})
    dataset = Dataset(captures, lesson.taps, frozen.vocabulary, len(frozen.embedding), plan.held_out, plan.data_share)
    answer_tokens = sum(len(item.record.answer) for item in dataset.train)
    say(f"{len(dataset.train)} records to train on, {len(dataset.held_out)} held out; {_count(lesson)} weights")
    dataset.teach(frozen.rows)
    loop = _Loop(lesson, dataset, plan, run or Path("runs/fit") / method, say)
    seconds = loop.run()
    hits = loop.measure()
    out = out or models_dir() / folder.name / method
    training = (
        asdict(plan)
        | dict(knobs or {})
        | {"data": "+".join(capture.data for capture in captures), "seconds": round(seconds), "steps": loop.step, "answer_tokens": answer_tokens}
    )
    training |= {"held_out_acceptance": [round(a, 4) for a in hits.conditional()]}
    save_head(out, HeadConfig(method, lesson.sizes(), Fingerprint(weights or "unknown"), training), lesson.module, dataset.vocabulary)
    say(f"saved {out}; held-out acceptance per depth {training['held_out_acceptance']}, chain tau {hits.chain_tau():.3f}")
    fitted = Fitted(out, loop.step, seconds, tuple(hits.conditional()), hits.chain_tau())
    result = asdict(fitted) | {"folder": str(out), "method": method, "answer_tokens": answer_tokens, "data_share": plan.data_share}
    (loop.folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    return fitted


def freeze(folder: Path, captures: Sequence[Capture], draft_vocab: int) -> Frozen:
    """Reads what training needs of the target, in fp32; the draft vocabulary is counted over the captured records."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).requires_grad_(False)
    records = [record for capture in captures for n in capture.done() for record in capture.records(n)]
    ends = model.config.eos_token_id
    vocabulary = torch.tensor(draft_vocabulary(records, draft_vocab, ends if isinstance(ends, list) else [ends]))
    rows = model.get_output_embeddings().weight[vocabulary].clone()
    norm = getattr(getattr(model.get_decoder(), "norm", None), "weight", torch.ones(rows.shape[1]))
    return Frozen(model.config, model.get_input_embeddings().weight.detach(), rows, vocabulary, norm.detach().clone())


def _lesson(method: str, frozen: Frozen, knobs: Mapping[str, Any]) -> Lesson:
    name = f"specviz.training.methods.{method}"
    if not method.isidentifier() or importlib.util.find_spec(name) is None:
        raise BadInput(f"No training for {method!r}; expected the name of a file in specviz/training/methods.")
    lesson: Lesson = importlib.import_module(name).lesson(frozen, **knobs)
    return lesson


def _count(lesson: Lesson) -> str:
    return f"{sum(p.numel() for p in lesson.module.parameters()) / 1e6:.2f} M"


class _Loop:
    """One fit in progress; everything that a resume needs is (step, module, optimizer), as all randomness comes from (seed, step)."""

    def __init__(self, lesson: Lesson, dataset: Dataset, plan: Plan, folder: Path, say: Say) -> None:
        from accelerate import Accelerator

        self.lesson, self.dataset, self.plan, self.folder, self.say = lesson, dataset, plan, folder, say
        self.step = 0
        self.batches = [b for epoch in range(plan.epochs) for b in dataset.epoch(plan.seed + epoch, plan.tokens)]
        self.total = len(self.batches)
        self.accelerator = Accelerator(mixed_precision=None if plan.precision == "fp32" else plan.precision)
        self.device = self.accelerator.device
        lesson.module.to(self.device)
        lesson.frozen.place(self.device, plan.precision)
        optimizer = torch.optim.AdamW(lesson.module.parameters(), plan.rate, betas=plan.betas, weight_decay=plan.weight_decay)
        self.optimizer = self.accelerator.prepare_optimizer(optimizer)
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> float:
        """Trains to the end of the plan, or to `stop_after`; returns the seconds spent, earlier sessions of a resumed fit included."""
        earlier, started = self._resume(), time.monotonic()
        last = min(self.total, self.plan.stop_after or self.total)
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(f"fit {self.lesson.method}", total=last, completed=self.step)
            while self.step < last:
                parts = self._one_step(self.batches[self.step])
                bar.update(task, completed=self.step, description=f"fit {self.lesson.method}, loss {parts['loss']:.3f}")
                self._report(parts, earlier + time.monotonic() - started, last)
        self._save(earlier + time.monotonic() - started)
        return earlier + time.monotonic() - started

    def _one_step(self, items: list[Item]) -> dict[str, float]:
        rate = self.plan.rate * _share(self.step, self.plan.warm_up, self.total)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        chance = torch.Generator().manual_seed(self.plan.seed * 1_000_003 + self.step)
        self.lesson.module.train()
        with self.accelerator.autocast():
            parts = self.lesson.loss(self.dataset.batch(items).to(self.device), chance)
        self.accelerator.backward(parts["loss"])
        self.accelerator.clip_grad_norm_(self.lesson.module.parameters(), self.plan.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {"rate": rate} | {name: float(part.detach()) for name, part in parts.items()}

    def measure(self) -> Hits:
        """Returns chain hits over the held-out records that the target wrote greedily."""
        greedy = [item for item in self.dataset.held_out if item.record.temperature == 0] or self.dataset.held_out
        self.lesson.module.eval()
        with torch.no_grad(), self.accelerator.autocast():
            found = [self.lesson.hits(self.dataset.batch(b).to(self.device)) for b in shuffled_batches(greedy, 0, self.plan.tokens)]
        return sum(found[1:], found[0])

    def _report(self, parts: Mapping[str, float], seconds: float, last: int) -> None:
        record: dict[str, Any] = {"step": self.step, "seconds": round(seconds, 1)} | {k: round(v, 5) for k, v in parts.items()}
        if self.step % self.plan.measure_every == 0 or self.step == last:
            hits = self.measure()
            record |= {"acceptance": [round(a, 4) for a in hits.conditional()], "chain_tau": round(hits.chain_tau(), 4)}
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps(record) + "\n")
        if self.step % 50 == 0 or "acceptance" in record:
            self.say(f"{self.step}/{last} " + " ".join(f"{k}={v}" for k, v in record.items() if k != "step"))
        if self.step % self.plan.save_every == 0:
            self._save(seconds)

    def _save(self, seconds: float) -> None:
        save_state(self.folder, self.lesson.module, self.optimizer, {"step": self.step, "seconds": seconds, "total": self.total})

    def _resume(self) -> float:
        found = load_state(self.folder, self.lesson.module, self.optimizer)
        if found is None:
            return 0.0
        if found["total"] != self.total:
            raise BadInput(f"{self.folder} holds a fit of {found['total']} steps, this plan has {self.total}. Give --run another folder.")
        self.step = int(found["step"])
        self.say(f"resumed at step {self.step}")
        return float(found["seconds"])


def _share(step: int, warm_up: int, total: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))
