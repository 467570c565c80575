"""A made-up head report for tests of what reads one."""

from __future__ import annotations

from specviz.analysis.acceptance import CalibrationBin
from specviz.analysis.head_report import (
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
