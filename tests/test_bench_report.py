"""docs/performance.md: every number comes from a file, a missing one is said to be missing, and a goal is compared as it is written."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))  # the scripts import each other

import bench_report  # noqa: E402
import performance_goals  # noqa: E402
import performance_page  # noqa: E402
import startup_check  # noqa: E402
import streaming_check  # noqa: E402

SPREAD = {"median": 1.5, "low": 1.25, "high": 1.75, "count": 4}
TERMS = {
    "verify": 1.25,
    "draft": 0.2,
    "rule": 0.03,
    "commit": 0.02,
    "events": 0.01,
    "wall": 1.29,
    "modelled": 1.9 / 1.5,
    "dearest": "verify",
    "without_dearest": 1.52,
}
META = {
    "target": {"name": "tiny"}, "rule": {"name": "rejection"}, "sampling": {"temperature": 0.0}, "device": {"name": "CPU, 2 threads"}, "dtype": "float32",
    "prompts": {"file": "p.jsonl", "count": 3}, "max_new_tokens": 8, "raw": False, "threads": 2,
}  # fmt: skip


def drafter(name: str, speedup: float, tau: float = 1.9, learned: bool = True) -> dict[str, Any]:
    numbers = {"name": name, "prompts": 3, "tau": tau, "tokens_per_second": 31.4, "baseline_tokens_per_second": 25.0, "speedup": speedup}
    kept = {**numbers, "speedup_median": speedup, "equal_to_baseline": 1.0, "cost": None, "explained": TERMS}
    ran = [{"prompt": f"p/{i}", "speedup": speedup + i / 10} for i in range(3)]
    return {**kept, "per_prompt": ran, "drafter": {"trained_against": {}} if learned else {}, "seconds": {}}


def bench(*drafters: dict[str, Any]) -> dict[str, Any]:
    return {"drafters": list(drafters), "baseline": {}, "meta": {**META, "definitions": {}}}


def peer(name: str, ratio: float, **changed: Any) -> dict[str, Any]:
    numbers = {"tokens_per_second": SPREAD, "speed_ratio": {**SPREAD, "median": ratio}, "tau": 1.0, "equal": 1.0, "memory": {"peak": 9e8}}
    told = {"name": name, "label": f"{name}!", "about": "How.", "notes": "", "reason": None, "prompts": 3, "differences": [], "per_prompt": [1]}
    return {**told, **numbers, **changed}


OUTPUTS: dict[str, dict[str, Any]] = {
    "profile": {
        "forward_ms": {"1": 20.0, "16": 31.0, "64": 70.0}, "forward_spread": {n: {"low": 19.0, "high": 80.0, "count": 9} for n in ("1", "16", "64")},
        "batch_ms": {"2": {"1": 22.0, "4": 30.5}}, "cached_tokens": 128, "floor": {"forward": {"1": {"floor_ms": 10.0, "bound": "memory", "gap": 2.0}}},
        "drafters": {"eagle": {"step_ms": 2.5, "budgets": {"8": {f"{phase}_ms": 1.25 for phase in ("draft", "verify", "accept", "commit", "record")}}}},
    },
    "explain": bench(drafter("eagle", 1.33), drafter("prompt_lookup", 0.91, tau=1.2, learned=False)),
    "sampled": bench(drafter("eagle", 0.99)),
    "lookup": bench(drafter("prompt_lookup", 1.62, learned=False)),
    "peers": {"peers": [peer("autoregressive", 1.21), peer("flashspec", 0.7, prompts=0, reason="no network")], "reference": "transformers_generate", "meta": META},
    "overhead": {"trace_overhead": [{"name": "eagle", "ratio": 1.02, "recorded_seconds": [1.02, 2.1], "plain_seconds": [1.0, 2.0]}], "aim": 1.03, "meta": META},
    "streaming": {"spec": "eagle", "tokens": 8, "repeats": 3, "runs": {}, **{f"{kind}_ratio": {"handler": SPREAD, "client": {**SPREAD, "median": 1.01}} for kind in ("decoding", "wall")}},
    "startup": {name: {**SPREAD, "median": 0.2} for name in ("import_specviz", "command_help", "first_screen", "model_ready")} | {"drawn_screen": None},
}  # fmt: skip
MACHINE = {"processor": "A processor", "cores": 2, "memory_gib": 8, "system": "Linux", "threads": None, "versions": {"torch": "2.13.0"}}


def records(**changed: dict[str, Any]) -> dict[str, Any]:
    outputs = OUTPUTS | changed
    return {step: {"machine": MACHINE, "date": "2026-12-01", "result": performance_page.thin(step, output)} for step, output in outputs.items()}


def test_a_page_without_files_says_what_was_not_measured() -> None:
    page = performance_page.render({})
    for step in bench_report.STEPS:
        assert f"--only {step}`" in page
    assert page.count("| - | not measured |") == len(performance_goals.goals({}))
    assert "met;" not in page
    assert "| met |" not in page


def test_every_section_shows_its_numbers_with_spreads() -> None:
    page = performance_page.render(records())
    for shown in (
        "A processor, 2 cores, 8 GiB, Linux; torch 2.13.0; 2026-12-01", "| 16 | 31.0 (19.0 to 80.0) | 1.55 | - | - |", "10.0 (memory) | 2.0 |",
        "| 2 | 22.0 | 30.5 |", "`eagle` 2.50", "| `eagle` | 1.90 | 1.25 | 0.20 | 0.03 | 0.02 | 1.27 | 1.33 | 1.43 (1.38 to 1.48) | 1.29 | 31.4 | 100 % |",
        "| autoregressive! | 1.5 (1.2 to 1.8) | 1.21 (1.25 to 1.75) | 1.00 | 100 % | 900 MB |", "- flashspec!: no network.", "1.035 (1.028 to 1.042)",
        "1.010 (1.250 to 1.750)", "| `import specviz` | 0.200 (1.250 to 1.750) |",
    ):  # fmt: skip
        assert shown in page, shown
    assert "Not measured yet" not in page
    assert "None" not in page


def met(found: list[Any]) -> dict[str, Any]:
    return {goal.text: goal.met for goal in found}


def test_goals_are_met_or_not_as_measured() -> None:
    assert met(performance_goals.goals(records())) == {
        "`autoregressive` against transformers' generate": True, "C(16) / C(1)": True, "C(64) / C(1)": False,
        "`eagle`, the best trained head, temperature 0": True, "`prompt_lookup`, the slowest default, temperature 0": False,
        "`prompt_lookup`, summarising": True, "`eagle`, the slowest default at temperature 1": True, "recording `eagle`, wall time over not recording": True,
        "decoding time with a client that watches": True, "`import specviz`": True, "`make app` until the page answers": True,
        "`make app` until the model is ready": True,
    }  # fmt: skip


def test_a_missed_goal_names_the_term_that_forbids_it() -> None:
    entry, lost = drafter("eagle", 1.27), "most is lost to verify, without which it would be 1.52x"
    assert performance_goals.obstacle(entry, 1.5) == f"for 1.5x at tau 1.90 a round may cost 1.27 C(1), it costs 1.50; {lost}"
    assert performance_goals.obstacle({**entry, "tau": 1.4}, 1.5) == "tau 1.40 is below 1.5, whatever a round costs"
    assert performance_goals.obstacle({**entry, "explained": None}, 1.5) == ""
    for speed, missed in ((1.1, "for 1.2x"), (1.33, "for 1.5x"), (1.64, "for 1.8x")):
        assert performance_goals.speed_goals(performance_page.thin("explain", bench(drafter("eagle", speed))))[0].why.startswith(missed)
    assert performance_goals.speed_goals(performance_page.thin("explain", bench(drafter("eagle", 1.85))))[0].why == ""
    goal = performance_goals.at_least("x", 1.3, 1.2, [1.5], "because")
    assert (goal.met, goal.why) == (True, "because")
    assert performance_goals.at_least("x", 1.6, 1.2, [1.5], "because").why == ""


PLAN = bench_report.Plan("/data/p.jsonl", None, "summarization", 2, 8, 1, "prompt_lookup")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Steps that are a line of Python each; returns how often each ran."""
    ran: dict[str, int] = {}

    def words(name: str, scratch: Path) -> list[str]:
        ran[name] = ran.get(name, 0) + 1
        return [sys.executable, "-c", f"open({str(scratch / 'out.json')!r}, 'w').write({json.dumps(OUTPUTS[name])!r})"]

    monkeypatch.setattr(bench_report, "STEPS", {name: lambda plan, scratch, name=name: words(name, scratch) for name in ("profile", "peers")})
    return ran


def test_a_step_is_measured_once_and_again_only_when_something_changed(tmp_path: Path, steps: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["x", "--out", str(tmp_path / "out"), "--page", str(tmp_path / "page.md"), "--drafters", "prompt_lookup", "--prompts", "/data/p.jsonl"]
    monkeypatch.setattr(sys, "argv", words)
    future = 4e9  # newer than any source
    assert bench_report.main() == 0
    for place in (tmp_path / "out").iterdir():
        os.utime(place, (future, future))
    assert bench_report.main() == 0
    assert steps == {"profile": 1, "peers": 1}
    monkeypatch.setattr(sys, "argv", [*words, "--only", "peers", "--force"])
    bench_report.main()
    assert steps == {"profile": 1, "peers": 2}
    monkeypatch.setattr(sys, "argv", [*words, "--tokens", "4"])
    bench_report.main()
    assert steps == {"profile": 2, "peers": 3}
    text = (tmp_path / "out" / "profile.json").read_text()
    assert "/data" not in text
    assert json.loads(text)["machine"] == bench_report.machine()
    assert "1.55" in (tmp_path / "page.md").read_text()


def test_a_step_that_fails_keeps_the_old_file_and_the_others_go_on(tmp_path: Path, steps: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--out", str(tmp_path), "--page", str(tmp_path / "page.md"), "--drafters", "x"])
    bench_report.main()
    before = (tmp_path / "profile.json").read_text()
    sys.argv.append("--force")
    monkeypatch.setitem(bench_report.STEPS, "profile", lambda plan, scratch: [sys.executable, "-c", "raise SystemExit(3)"])
    assert bench_report.main() == 1
    assert (tmp_path / "profile.json").read_text() == before
    assert steps["peers"] == 2


def test_commands_are_ones_that_the_command_line_knows(tmp_path: Path) -> None:
    from specviz.cli import build_parser

    source = tmp_path / "spec.jsonl"
    source.write_text('{"prompt": "a", "task": "qa"}\n{"prompt": "b", "task": "summarization", "id": "s/1"}\n')
    plan = bench_report.Plan(None, str(source), "summarization", 2, 8, 1, "prompt_lookup")
    for name, make in bench_report.STEPS.items():
        words = make(plan, tmp_path)
        if words[1:3] == ["-m", "specviz"]:
            build_parser().parse_args(words[3:])
        else:
            assert Path(words[1]).exists(), name
    assert [json.loads(line)["id"] for line in (tmp_path / "summarization.jsonl").read_text().splitlines()] == ["s/1"]
    with pytest.raises(SystemExit, match="no prompts of task"):
        bench_report.lookup(bench_report.Plan(None, str(source), "rag", 2, 8, 1, ""), tmp_path)


def test_streaming_is_measured_on_the_real_page(tiny_target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps import LOOPING, SETTINGS

    from specviz.ui import runs
    from specviz.ui.app import App

    monkeypatch.setattr(runs, "FRAME", 0.0)  # a picture of every round, as those of a tiny target take no time

    app = App(SETTINGS, streaming_check.Watched(SETTINGS, load=lambda: tiny_target))
    told = streaming_check.measure(app, partial(streaming_check.decoded, tiny_target), LOOPING, 12, 2)
    assert {mode: [run["rounds"] for run in runs] for mode, runs in told["runs"].items()} == dict.fromkeys(
        streaming_check.MODES, [told["runs"]["direct"][0]["rounds"]] * 2
    )
    assert all(run["messages"] > run["rounds"] for run in told["runs"]["client"])  # the client read every round
    assert told["decoding_ratio"]["client"]["count"] == 2
    slower = {"direct": [{"decoding": 1.0, "wall": 2.0}], "handler": [{"decoding": 1.0, "wall": 3.0}], "client": [{"decoding": 1.5, "wall": 4.0}]}
    assert streaming_check.ratios(slower)["decoding_ratio"]["client"]["median"] == 1.5


def test_a_stream_that_breaks_off_or_fails_is_an_error() -> None:
    done = 'data: {"msg": "process_completed", "event_id": "e", "success": true}'
    assert streaming_check.read_stream(iter(["", 'data: {"msg": "x"}', done]), "e") == 2
    for lines in (['data: {"msg": "x"}'], [done.replace("true", "false")]):
        with pytest.raises(SystemExit):
            streaming_check.read_stream(iter(lines), "e")


def test_a_heavy_import_at_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert startup_check.imported() > 0
    monkeypatch.setattr(startup_check, "HEAVY", ("sys",))
    with pytest.raises(SystemExit, match="imports sys"):
        startup_check.imported()


def test_the_page_in_the_repository_is_the_one_that_its_files_give() -> None:
    folder, page = ROOT / "docs" / "performance", ROOT / "docs" / "performance.md"
    assert page.read_text(encoding="utf-8") == performance_page.render(bench_report.read_results(folder))
