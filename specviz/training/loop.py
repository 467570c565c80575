"""The training loop: AdamW, cosine with warm-up, resumable, on one process or several. It knows no method by name."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from specviz.checks import is_number, is_whole
from specviz.errors import BadInput
from specviz.say import Say
from specviz.training.dataset import Batch, Dataset, shuffled_batches
from specviz.training.methods.base import Hits, Lesson
from specviz.training.state import check_settings, load_state, read_progress, save_state
from specviz.training.workers import Workers

LEAST = {"epochs": 1, "warm_up": 0, "tokens": 1, "draft_vocab": 1, "seed": 0, "measure_every": 1, "save_every": 1}
BETWEEN = {"rate": (1e-9, 10.0), "clip": (1e-6, 1e6), "weight_decay": (0.0, 10.0), "held_out": (0.0, 1.0), "data_share": (1e-6, 1.0)}


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
    within: float | None = None  # seconds; the rate then falls with the clock, and the fit ends with it if not before

    def __post_init__(self) -> None:
        """Refuses what would end in an untrained head or far into the work. Raises BadInput naming the value."""
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise BadInput(f"{name}={value!r} is not possible in a plan: expected a whole number from {least}.")
        for name, (low, high) in BETWEEN.items():
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise BadInput(f"{name}={value!r} is not possible in a plan: expected a number from {low} to {high}.")
        if self.within is not None and not (is_number(self.within) and self.within > 0):
            raise BadInput(f"within={self.within!r} is not possible in a plan: expected a number of seconds above 0, or nothing.")
        if self.stop_after is not None and (not is_whole(self.stop_after) or self.stop_after < 1):
            raise BadInput(f"stop_after={self.stop_after!r} is not possible in a plan: expected a whole number of steps from 1, or nothing.")
        betas = self.betas if isinstance(self.betas, list | tuple) else ()
        if len(betas) != 2 or not all(is_number(beta) and 0 <= beta < 1 for beta in betas):
            raise BadInput(f"betas={self.betas!r} is not possible in a plan: expected two numbers from 0 and below 1, such as [0.9, 0.95].")
        if self.precision not in ("bf16", "fp32"):
            raise BadInput(f"precision={self.precision!r} is not possible in a plan: expected bf16 or fp32.")


class Loop:
    """One fit in progress; everything that a resume needs is (step, module, optimizer), as all randomness comes from (seed, step).

    `settings` is all that decides the weights; a fit with others does not go on from this one's state.
    """

    def __init__(self, lesson: Lesson, dataset: Dataset, plan: Plan, folder: Path, *, workers: Workers, settings: Mapping[str, Any], say: Say) -> None:
        self.lesson, self.dataset, self.plan, self.folder, self.workers, self.say = lesson, dataset, plan, folder, workers, say
        self.settings = dict(settings)
        self.step = 0
        self.batches = [b for epoch in range(plan.epochs) for b in dataset.epoch(plan.seed + epoch, plan.tokens)]
        self.total = len(self.batches)
        if plan.within is not None and workers.count > 1:
            raise BadInput("within is for one process: several would not end at the same step. Give a number of epochs instead.")
        lesson.module.to(workers.device)
        lesson.frozen.place(workers.device, plan.precision)
        self.optimizer = torch.optim.AdamW(lesson.module.parameters(), plan.rate, betas=plan.betas, weight_decay=plan.weight_decay)
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> float:
        """Trains to the end of the plan, or to `stop_after`; returns the seconds spent, earlier sessions of a resumed fit included."""
        earlier, started = self._resume(), time.monotonic()
        last = min(self.total, self.plan.stop_after or self.total)
        console = Console(stderr=True)
        bar = Progress(console=console, transient=True, disable=not console.is_terminal or not self.workers.first)
        with bar, ThreadPoolExecutor(1) as reader:
            task = bar.add_task(f"fit {self.lesson.method}", total=last, completed=self.step)
            for cut in self._cuts(reader, last):
                spent = earlier + time.monotonic() - started
                if self.plan.within is not None and spent >= self.plan.within:
                    break
                parts = self._one_step(cut.result().to(self.workers.device), spent)
                bar.update(task, completed=self.step, description=f"fit {self.lesson.method}, loss {parts['loss']:.3f}")
                self._report(parts, earlier + time.monotonic() - started, last)
        if not self.step:
            raise BadInput(f"Not one step was made within={self.plan.within} seconds, so there is no head to save. Give the fit more time.")
        self._save(earlier + time.monotonic() - started)
        return earlier + time.monotonic() - started

    def _cuts(self, reader: ThreadPoolExecutor, last: int) -> Iterator[Future[Batch]]:
        """Yields the batches up to step `last`, each read while the one before it is learned from."""
        ahead: Future[Batch] | None = None
        for step in range(self.step, last):
            now = ahead or reader.submit(self.workers.cut, self.dataset, self.batches[step])
            ahead = reader.submit(self.workers.cut, self.dataset, self.batches[step + 1]) if step + 1 < last else None
            yield now

    def _one_step(self, batch: Batch, spent: float) -> dict[str, float]:
        done = max(self.step - self.plan.warm_up, 0) / max(1, self.total - self.plan.warm_up)
        rate = self.plan.rate * _share(self.step, self.plan.warm_up, max(done, spent / (self.plan.within or math.inf)))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        chance = torch.Generator().manual_seed(self.plan.seed * 1_000_003 + self.step)
        self.lesson.module.train()
        with self.workers.autocast():
            parts = self.lesson.loss(batch, chance)
        self.workers.backward(parts["loss"], self.lesson.module)
        torch.nn.utils.clip_grad_norm_(self.lesson.module.parameters(), self.plan.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        summed = self.workers.add(torch.stack([part.detach().float() for part in parts.values()]))
        return {"rate": rate} | dict(zip(parts, summed.tolist(), strict=True))

    def measure(self) -> Hits:
        """Returns chain hits over the held-out records that the target wrote greedily."""
        greedy = [item for item in self.dataset.held_out if item.record.temperature == 0] or self.dataset.held_out
        self.lesson.module.eval()
        with torch.no_grad(), self.workers.autocast():
            found = [self.lesson.hits(self.workers.batch(self.dataset, b)) for b in shuffled_batches(greedy, 0, self.plan.tokens)]
        total = sum(found[1:], found[0])
        return Hits(self.workers.add(total.reached), self.workers.add(total.right))

    def _report(self, parts: Mapping[str, float], seconds: float, last: int) -> None:
        record: dict[str, Any] = {"step": self.step, "seconds": round(seconds, 1)} | {k: round(v, 5) for k, v in parts.items()}
        if self.step % self.plan.measure_every == 0 or self.step == last:
            hits = self.measure()
            record |= {"acceptance": [round(a, 4) for a in hits.conditional()], "chain_tau": round(hits.chain_tau(), 4)}
        if self.workers.first:
            with (self.folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(record) + "\n")
        if self.step % 50 == 0 or "acceptance" in record:
            self.say(f"{self.step}/{last} " + " ".join(f"{k}={v}" for k, v in record.items() if k != "step"))
        if self.step % self.plan.save_every == 0:
            self._save(seconds)

    def _save(self, seconds: float) -> None:
        if self.workers.first:
            save_state(self.folder, self.lesson.module, self.optimizer, {"step": self.step, "seconds": seconds, "total": self.total, "settings": self.settings})
        self.workers.wait()

    def _resume(self) -> float:
        found = read_progress(self.folder)
        if found is None:
            return 0.0
        check_settings(self.folder, found, self.settings)
        if found["total"] != self.total:
            raise BadInput(f"{self.folder} holds a fit of {found['total']} steps, this plan has {self.total}. Give --run another folder.")
        load_state(self.folder, self.lesson.module, self.optimizer, found)
        self.step = int(found["step"])
        self.say(f"resumed at step {self.step}")
        return float(found["seconds"])


def _share(step: int, warm_up: int, done: float) -> float:
    """Linear warm-up, then a cosine to zero; `done` is the share of the fit that is over."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
