"""Head reports and installed heads for tests: made up by hand, in a models folder of the test's own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from specviz.analysis.acceptance import CalibrationBin
from specviz.analysis.head_report import (
    NAME,
    Checked,
    Greedy,
    HeadReport,
    LearningPoint,
    Misses,
    Point,
    ReportTarget,
    ReportText,
    Sampled,
)

WEIGHTS = "00112233445566aa"  # of the target that made-up heads were trained against
TEXT = ReportText("questions.jsonl", 80, 9876, 128, "feed")


def make_report(**changed: object) -> HeadReport:
    """Returns a small report that has every part."""
    greedy = (
        Greedy("chain", "eagle@chain", 5, 1.6, 500, (500, 200, 60), (200, 60, 20), {"chat": 1.5, "code": 1.7}),
        Greedy("dynamic", "eagle@dynamic:nodes=24", 24, 2.1, 400, (400, 320, 0), (320, 160, 0), {"chat": 2.0, "code": 2.2}),
        Greedy("dynamic", "eagle@dynamic:nodes=60,depth=6,top_k=10", 60, 2.5, 350, (350, 300, 20), (300, 170, 10), {"chat": 2.4, "code": 2.6}),
    )
    made = HeadReport(
        "eagle",
        ReportTarget("tiny", "aaaa"),
        "c0ffee",
        "2026-01-02",
        12.5,
        ReportText("prompts.jsonl", 8, 800, 128, "beef"),
        greedy=greedy,
        checked=Checked("eagle@dynamic:nodes=24", 8, 2.1, 2.11),
        sampled=(Sampled(0.7, "eagle@dynamic:nodes=24", 24, 8, 1.9, (100, 50), (50, 20)),),
        misses=Misses(800, 40),
        calibration=(CalibrationBin(0.1, 0.2, 40, 0.15, None, 0.2),),
        loss=(Point(1, 9.5), Point(2, 8.0)),
        held_out=(Point(2, 1.4),),
        learning_curve=(LearningPoint(1000, 1.3, "data"), LearningPoint(2000, 1.4, "training")),
        training={"epochs": 2, "steps": 2},
        evaluation={"mmlu": 0.31},
    )
    return HeadReport(**{**made.__dict__, **changed})  # type: ignore[arg-type]


def greedy(shape: str, spec: str, nodes: int, first: float, rounds: int = 4000) -> Greedy:
    """Returns a measurement whose acceptance starts at `first` and falls with the depth; tau is what these counts give."""
    reached, accepted, left = [], [], rounds
    for depth in range(5):
        took = round(left * max(0.1, first - 0.04 * depth))
        reached, accepted, left = [*reached, left], [*accepted, took], took
    tau = 1 + sum(accepted) / rounds
    return Greedy(shape, spec, nodes, round(tau, 4), rounds, tuple(reached), tuple(accepted), {"writing": tau + 0.2, "maths": tau - 0.1, "coding": tau})


def full_report(method: str = "eagle", first: float = 0.6, **changed: Any) -> HeadReport:
    """Returns a report in which every part was measured."""
    grown = [greedy("dynamic", f"{method}@dynamic:nodes={n}", n, first - 0.15 + 0.05 * place) for place, n in enumerate((4, 8, 12, 16, 24, 32, 48, 60))]
    still = [greedy("chain", f"{method}@chain", 6, first - 0.1), greedy("medusa_63", f"{method}@medusa_63", 64, first + 0.05)]
    main = grown[4]
    parts: dict[str, Any] = {
        "method": method, "target": ReportTarget("tiny-llama", WEIGHTS), "checkpoint": checkpoint_of(method), "made": "2026-01-02", "seconds": 321.0,
        "text": TEXT, "greedy": (*still, *grown), "checked": Checked(main.spec, 10, 2.012, 2.0),
        "sampled": tuple(Sampled(heat, main.spec, 24, 20, main.tau - heat / 4, main.reached, main.accepted) for heat in (0.7, 1.0)),
        "misses": Misses(9876, 123),
        "calibration": tuple(CalibrationBin(i / 10, (i + 1) / 10, 9000 // (i + 1), i / 10 + 0.05, None, (i / 10 + 0.05) ** 1.2) for i in range(10)),
        "loss": tuple(Point(step, 3.0 / (1 + step / 500)) for step in range(0, 4001, 50)),
        "held_out": tuple(Point(step, 1.2 + step / 8000) for step in range(500, 4001, 500)),
        "learning_curve": (
            *(LearningPoint(n, 1.3 + n / 4e6, "data") for n in (250_000, 500_000, 1_000_000)),
            *(LearningPoint(n, 1.2 + n / 9e6, "training") for n in range(300_000, 3_000_001, 300_000)),
        ),
        "training": {"epochs": 3, "rate": 0.0006}, "evaluation": {"made_up_eval": 0.31},
    }  # fmt: skip
    return HeadReport(**{**parts, **changed})


def install(models: Path, method: str, report: HeadReport | None = None, *, target: str = "tiny-llama", trained_against: str = WEIGHTS) -> Path:
    """Puts a head that nobody trained into a models folder, with its report where one is given; returns its folder."""
    folder = models / target / method
    folder.mkdir(parents=True)
    training = {"epochs": 3, "answer_tokens": 1_234_567, "seconds": 2080, "data": "abc123"}
    (folder / "config.json").write_text(json.dumps({"method": method, "sizes": {}, "target": {"weights": trained_against}, "training": training}))
    (folder / "model.safetensors").write_bytes(contents(method))
    if report is not None:
        (folder / NAME).write_text(json.dumps(report.to_json()))
    return folder


def contents(method: str) -> bytes:
    return method.encode() * 100_000


def checkpoint_of(method: str) -> str:
    return hashlib.sha256(contents(method)).hexdigest()[:16]
