"""scripts/gpu_check.sh and what it runs: what is compared, what is kept when a step is broken off, and what the goals make of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded import Knowing

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))  # the scripts import each other

import gpu_check  # noqa: E402
import gpu_compare  # noqa: E402
import gpu_goals  # noqa: E402

from specviz.analysis.compare import Difference  # noqa: E402
from specviz.bench import Bench, Plan  # noqa: E402
from specviz.build import build_rule, check_spec, parse_spec, split_specs  # noqa: E402
from specviz.errors import BadInput  # noqa: E402
from specviz.graphs.lease import VIEW  # noqa: E402
from specviz.prompts import BUILT_IN, Prompt  # noqa: E402
from specviz.sampling import Sampling  # noqa: E402
from specviz.target import Target  # noqa: E402

SCRIPT = ROOT / "scripts" / "gpu_check.sh"
PROMPT = Prompt("to be or not to be", "prompt")


@pytest.fixture(scope="module")
def sides(make_target, tiny_target) -> gpu_compare.Sides:
    """The tiny target in float64 on every side, so that rounding flips nothing; static shapes in the place of graphs."""
    made = make_target("llama", attention="tree", dtype=torch.float64)
    reference, device = (Target(made.model, made.tokenizer, made.name, tiny_target.fingerprint) for _ in range(2))
    device.use_graphs()
    return gpu_compare.Sides.beside(reference, device)


def plan(temperature: float = 0.0, tokens: int = 8) -> Plan:
    return Plan(build_rule("rejection"), Sampling(temperature), tokens)


def check(**changed: Any) -> gpu_compare.Check:
    same = {"reference": None, "ordinary": None, "stepwise": None, "plain": None}
    rounds = {"reference": 20, "device": 20, "ordinary": 20, "stepwise": 20}
    told = {"drafter": "eagle@dynamic", "temperature": 0.0, "prompt": "p", "new_tokens": 32, "draft_graphs": "cuda", "rounds": rounds, "differences": same}
    return gpu_compare.Check(**{**told, "plain_compared": True, **changed})


# -- what is compared


def test_every_drafter_a_longer_view_and_two_rows_are_compared(sides, random_heads):
    specs = [parse_spec("prompt_lookup"), parse_spec(f"eagle@dynamic:checkpoint={random_heads('eagle')}")]
    found = list(gpu_compare.every_check(sides, specs, BUILT_IN[:1], [plan(), plan(1.0)]))
    eagle = str(specs[1])
    asked = [(one.drafter, one.prompt, one.temperature) for one in found]
    chat, rows = BUILT_IN[0].name, [f"{BUILT_IN[0].name} (row 1 of 2)", f"{BUILT_IN[4].name} (row 2 of 2)"]
    assert asked == [
        ("prompt_lookup", chat, 0.0), (eagle, chat, 0.0), (eagle, "long", 0.0), (eagle, rows[0], 0.0), (eagle, rows[1], 0.0),
        ("prompt_lookup", chat, 1.0), (eagle, chat, 1.0),
    ]  # fmt: skip
    assert all(one.equal and not one.failed for one in found)
    assert [one.draft_graphs for one in found[:2]] == [None, "static"]
    assert ["stepwise" in one.rounds for one in found[:2]] == [False, True]
    graphs = [envelope for lease in sides.device.graphs._leases._idle for envelope in lease.graphs]
    assert {envelope.view for envelope in graphs} == {VIEW, 2 * VIEW}
    assert any(lease.rows == 2 for lease in sides.device.graphs._leases._idle)


def test_the_long_prompt_ends_just_before_the_first_view_does(tiny_target):
    for tokens in (8, 48):
        length = len(tiny_target.encode(gpu_compare.long_prompt(tiny_target, tokens).text))
        assert VIEW - tokens // 2 - 12 <= length <= VIEW - tokens // 2 < VIEW < length + tokens + 12


def test_drafts_that_are_wrong_on_the_device_show_in_the_rounds(sides):
    """Speculation is lossless: a device that drafts nothing useful writes the same text."""
    benches = {name: Bench(getattr(sides, name), [parse_spec("prompt_lookup")], plan(tokens=40)) for name in ("reference", "device", "ordinary", "stepwise")}
    plain = gpu_compare.run_rows(benches["device"], benches["device"].baseline, [PROMPT])[0]
    for bench in benches.values():  # a drafter that knows the text, all but every fourth token
        bench.drafters["prompt_lookup"] = Knowing(bench.target, [*bench.ids(PROMPT), *plain.tokens], 4)
    (right,) = gpu_compare.check(benches, ["prompt_lookup"], [PROMPT])
    assert right.rounds["device"] < 30
    assert not right.failed
    benches["device"].drafters["prompt_lookup"] = benches["device"].baseline
    (wrong,) = gpu_compare.check(benches, ["prompt_lookup"], [PROMPT])
    assert wrong.equal
    assert wrong.why.startswith(f"drafts differ: {wrong.rounds['device']} rounds, {right.rounds['device']} on the CPU, at most")
    assert "FAILED: drafts differ" in gpu_compare.line(wrong)


@pytest.mark.parametrize(("rounds", "apart", "failed"), [(20, {}, False), (22, {"ordinary": -2}, False), (17, {"ordinary": 3}, True), (31, {"ordinary": -11}, True)])  # fmt: skip
def test_a_few_rounds_more_or_less_are_told_and_many_are_a_failure(rounds, apart, failed):
    found = check(rounds={"reference": 20, "device": 20, "ordinary": rounds, "stepwise": 20})
    assert (found.rounds_apart, found.failed) == (apart, failed)
    assert ("rounds apart" in gpu_compare.line(found)) == bool(apart)
    assert ("without graphs" in found.why) == failed


def test_rounds_are_compared_only_where_the_text_is_the_same():
    tie = Difference(3, 1, 2, gap=1e-5)
    differences = {"reference": tie, "ordinary": None, "stepwise": None, "plain": tie}
    found = check(differences=differences, rounds={"reference": 30, "device": 20, "ordinary": 20, "stepwise": 20})
    assert (found.equal, found.failed, found.rounds_apart) == (False, False, {})


def test_another_text_is_a_failure_that_says_where():
    found = check(differences={"reference": None, "ordinary": Difference(3, 1, 2, gap=0.5), "stepwise": None, "plain": None})
    assert found.failed
    assert found.why == "another text without graphs from new token 4 on"
    assert json.dumps(found.to_json())


# -- what is kept, and what is measured


def test_the_file_is_written_after_every_check(sides, monkeypatch, tmp_path):
    place = tmp_path / "gpu_check.json"

    def broken_off(*given: object):
        yield check(draft_graphs="static")
        assert [len(json.loads(place.read_text())[name]) for name in ("checks", "left_out")] == [1, 4]
        yield check(draft_graphs="static")
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_check.Sides, "load", lambda name, dry: sides)
    monkeypatch.setattr(gpu_check, "every_check", broken_off)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--dry", "--out", str(tmp_path)])
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "none"))
    with pytest.raises(KeyboardInterrupt):
        gpu_check.main()
    kept = json.loads(place.read_text())
    assert (len(kept["checks"]), kept["complete"], kept["graphs"]) == (2, False, "static")


def test_the_list_of_drafters_loads_nothing_and_holds_fixed_trees(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "ready_drafters", lambda target: ["autoregressive", "eagle", "prompt_lookup"])
    monkeypatch.setattr(Target, "load", lambda *given, **named: pytest.fail("a model was loaded"))
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--specs"])
    assert gpu_check.main() == 0
    specs = split_specs(capsys.readouterr().out.strip())
    assert specs == ["eagle", "eagle@dynamic:nodes=8,depth=3,top_k=4", "eagle@dynamic:nodes=24", "prompt_lookup"]
    assert all(check_spec(parse_spec(spec)) for spec in specs)


def test_a_drafter_that_cannot_run_is_refused_when_it_is_asked_for():
    assert gpu_check.chosen(["autoregressive", "eagle"], None) == ["autoregressive", "eagle"]
    assert gpu_check.chosen(["autoregressive", "eagle"], "eagle") == ["eagle"]
    with pytest.raises(BadInput, match=r"medusa cannot run here\. Expected some of: autoregressive, eagle"):
        gpu_check.chosen(["autoregressive", "eagle"], "eagle,medusa")


# -- goals


def record(*checks: gpu_compare.Check, **changed: Any) -> dict[str, Any]:
    told = {"dry_run": False, "complete": True, "graphs": "cuda", "notes": [], "checks": [one.to_json() for one in checks]}
    return {**told, "failed": sum(one.failed for one in checks), **changed}


def peers(name: str, ours: float, theirs: float, device: str = "cuda:0") -> dict[str, Any]:
    rows = [{"name": who, "tokens_per_second": {"median": speed}, "reason": None} for who, speed in (("autoregressive", ours), (name, theirs))]
    return {"peers": rows, "setting": {"device": device, "graphs": "cuda", "notes": []}}


def drafted(*rows: tuple[str, float, float]) -> dict[str, Any]:
    return {"drafters": [{"name": name, "tau": tau, "speedup": speedup} for name, tau, speedup in rows], "meta": {"device": {"type": "cuda", "graphs": "cuda"}}}


def lines(folder: Path, files: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    for name, told in files.items():
        (folder / f"{name}.json").write_text(told if isinstance(told, str) else json.dumps(told))
    monkeypatch.setattr(sys, "argv", ["gpu_goals.py", str(folder)])
    assert gpu_goals.main() == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("step", ["peers", "bench", "overhead", "profile", "profile_bf16", "peers_static"])
def test_without_the_comparison_of_tokens_a_speed_on_a_gpu_still_counts(step):
    files = {
        "peers": peers("transformers_generate", 900.0, 100.0), "peers_static": peers("transformers_static_cache", 9.0, 3.0), "bench": drafted(("eagle", 2.0, 1.5)),
        "overhead": {"meta": {"device": {"type": "cuda"}}}, "profile": {"machine": {"type": "cuda"}}, "profile_bf16": {"machine": {"type": "cuda"}},
    }  # fmt: skip
    assert gpu_goals.on_a_gpu({step: files[step]})
    assert not gpu_goals.on_a_gpu({"peers": peers("transformers_generate", 1.0, 1.0, device="cpu"), "profile": {"machine": {"type": "cpu"}}})
    assert not gpu_goals.on_a_gpu({})


def test_a_goal_that_was_measured_is_met_or_missed_whatever_else_is_missing(tmp_path, monkeypatch, capsys):
    said = lines(tmp_path, {"peers": peers("transformers_generate", 900.0, 100.0), "peers_static": "{"}, monkeypatch, capsys)
    assert said[0].startswith("peers_static.json is damaged")
    assert [line.split()[0] for line in said[1:]] == ["not", "met", *["not"] * 5]
    assert not any("DRY RUN" in line for line in said)
    assert json.loads((tmp_path / "goals.json").read_text())["dry_run"] is False


def test_a_dry_run_measures_no_goal_but_the_tokens(tmp_path, monkeypatch, capsys):
    dry = record(check(draft_graphs="static"), dry_run=True, graphs="static")
    said = lines(tmp_path, {"gpu_check": dry, "peers": peers("transformers_generate", 900.0, 100.0)}, monkeypatch, capsys)
    assert all(line.startswith("DRY RUN, no measure of a GPU: ") for line in said)
    assert said[0].split(": ")[1].startswith("met ")
    assert said[1].split(": ")[1].startswith("not decided ")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (record(check(), graphs="off"), "verification fell back from graphs 'cuda' to 'off'"),
        (record(check(), check(draft_graphs="off")), "drafts were not replayed by eagle@dynamic"),
        (record(check(), complete=False), "broken off before every check was made"),
        (record(check(draft_graphs="static"), dry_run=True, graphs="off"), "verification fell back"),
    ],
)
def test_equal_texts_decide_nothing_where_no_graph_was_replayed(told, reason):
    found = gpu_goals.same_tokens({"gpu_check": told})
    assert (found.value, found.met) == (0.0, None)
    assert reason in found.told


def test_equal_texts_by_graphs_are_met_and_failures_are_named_even_when_the_rest_is_missing():
    assert gpu_goals.same_tokens({"gpu_check": record(check(), check(draft_graphs=None))}).met is True
    wrong = check(rounds={"reference": 12, "device": 31, "ordinary": 12, "stepwise": 12})
    found = gpu_goals.same_tokens({"gpu_check": record(check(), wrong, complete=False)})
    assert (found.value, found.met) == (1.0, False)
    assert "eagle@dynamic p T=0: drafts differ: 31 rounds, 12 on the CPU" in found.told
    few = check(rounds={"reference": 20, "device": 21, "ordinary": 20, "stepwise": 20})
    assert "1 with a few rounds more or less" in gpu_goals.same_tokens({"gpu_check": record(few)}).told


def test_the_fastest_drafter_decides_not_the_one_that_hardly_drafts():
    found = gpu_goals.best_drafter({"bench": drafted(("prompt_lookup", 1.17, 1.16), ("eagle", 2.5, 1.5), ("plain", 1.0, 1.0))})
    assert (found.value, found.met) == (pytest.approx(0.6), False)
    assert found.told == "eagle 1.50 / 2.50, prompt_lookup 1.16 / 1.17; graphs: cuda"


def test_each_peer_is_read_from_the_step_that_measured_it():
    files = {"peers": peers("transformers_generate", 900.0, 100.0), "peers_static": peers("transformers_static_cache", 800.0, 400.0)}
    assert gpu_goals.against_eager(files).value == 9.0
    assert gpu_goals.against_compiled(files).value == 2.0
    assert gpu_goals.against_compiled({"peers": files["peers"]}).value is None


# -- the script's time


def test_the_boxes_fit_the_limit_with_the_conversion_and_the_last_step():
    text = SCRIPT.read_text()
    boxes = {name: int(seconds) for name, seconds in re.findall(r"^step (\w+) (\d+) ", text, re.MULTILINE)}
    limit = int(re.search(r"MODE=check USUAL=(\d+)", text).group(1))
    assert sum(boxes.values()) + 45 + 20 + 50 <= limit <= 470, boxes
    assert list(boxes) == ["correctness", "peers", "bench", "profile", "overhead", "bfloat16"]


@pytest.fixture
def script(tmp_path):
    """Runs gpu_check.sh with a stand-in for python that notes what it was asked, after `slow` seconds where the words match."""

    def run(slow: str = "nothing", status: int = 0, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        python, noted = tmp_path / "python", tmp_path / "noted"
        python.write_text(f'#!/bin/sh\necho "$@" >>"{noted}"\ncase "$*" in *{slow}*) sleep 3; exit {status};; esac\n')
        python.chmod(0o755)
        noted.write_text("")
        env = {**os.environ, "PYTHON": str(python), "OUT": str(tmp_path / "out"), "SPECVIZ_MODELS": str(tmp_path), "DRY": "1", **variables}
        done = subprocess.run(["sh", str(SCRIPT)], env=env, capture_output=True, text=True, timeout=60, check=False)
        return done, noted.read_text().splitlines()

    return run


def test_the_steps_run_by_their_value_and_the_goals_last(script):
    done, asked = script()
    assert done.returncode == 0, done.stderr
    files = [Path(words.split()[-1]).name for words in asked]
    assert files[1:] == ["peers.json", "bench.json", "profile.json", "overhead.json", "profile_bf16.json", "peers_static.json", "out"]
    assert "gpu_check.py" in asked[0]
    assert "--only transformers_generate,transformers_prompt_lookup" in asked[1]
    assert "--only transformers_static_cache" in asked[6]


def test_the_goals_run_when_no_time_is_left_for_anything_else(script):
    done, asked = script(slow="gpu_check.py", LIMIT="7")
    assert [words.split()[0] for words in asked] == ["scripts/gpu_check.py", "scripts/gpu_goals.py"]
    assert "peers: left out" in done.stdout
    assert done.returncode == 0


def test_converting_the_weights_counts(script, tmp_path):
    (tmp_path / "weights.part0").write_text("")
    done, asked = script(slow="fetch", LIMIT="7", WEIGHTS_PARTS=str(tmp_path), STEPS="peers goals")
    assert [words.split()[0] for words in asked] == ["-m", "scripts/gpu_goals.py"]
    assert "peers: left out" in done.stdout


@pytest.mark.parametrize(("status", "expected"), [(1, 1), (124, 2)])
def test_the_exit_status_is_that_of_the_comparison(script, status, expected):
    done, asked = script(slow="gpu_check.py", status=status, STEPS="correctness goals")
    assert done.returncode == expected
    assert asked[-1].startswith("scripts/gpu_goals.py")
