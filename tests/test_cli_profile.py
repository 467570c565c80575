"""`profile` and `bench --explain` on the tiny target: what they print and write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_fixture import Cli, run_fixture  # noqa: F401
from made_costs import costs, profile, reported_head

from specviz import __version__
from specviz.analysis.profile_file import remembered_profiles, write_profile
from specviz.commands import list as list_verb
from specviz.errors import BadInput
from specviz.processor import processor_name
from specviz.target import Target

SMALL = ("--nodes", "1,4", "--batch", "1,2", "--repeats", "2", "--cached", "8")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("specviz.profiling.machine.COPY_BYTES", {"cpu": 1 << 16})
    monkeypatch.setattr("specviz.profiling.machine.PRODUCT", {"cpu": 32})


def test_profile_prints_one_object_and_remembers_it(run: Cli, tiny_folder: Path) -> None:
    done = run("profile", "--target", tiny_folder, *SMALL, "--drafters", "prompt_lookup", "--json")
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert set(told["forward_ms"]) == set(told["forward_spread"]) == {"1", "4"}
    assert {rows: set(row) for rows, row in told["batch_ms"].items()} == {"1": {"1", "4"}, "2": {"1", "4"}}
    assert set(told["drafters"]) == {"prompt_lookup"}
    assert told["floor"]["forward"]["4"]["floor_ms"] > 0
    assert told["machine"]["name"].startswith("CPU")
    assert "not remembered" in done.err, "a run of a few sizes must not stand in for the whole profile"
    assert not remembered_profiles()


def test_the_default_sizes_are_remembered(run: Cli, tiny_folder: Path) -> None:
    done = run("profile", "--target", tiny_folder, "--quick", "--repeats", "1", "--drafters", "none")
    assert done.status == 0, done.err
    (kept,) = remembered_profiles()
    assert {1, 8} <= set(kept.forward)


def test_what_was_measured_is_written_before_a_drafter_is_begun(run: Cli, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off(*given: object) -> None:
        raise BadInput("stopped here")

    monkeypatch.setattr("specviz.profiling.measure.with_drafters", broken_off)
    done = run("profile", "--target", tiny_folder, *SMALL, "--drafters", "prompt_lookup", "--json", tmp_path / "profile.json")
    assert done.status == 2
    assert set(json.loads((tmp_path / "profile.json").read_text())["forward_ms"]) == {"1", "4"}


def test_profile_prints_tables_and_leaves_out_heads_that_are_not_there(run: Cli, tiny_folder: Path, tmp_path: Path) -> None:
    done = run("profile", "--target", tiny_folder, "--quick", "--nodes", "1,4", "--repeats", "2", "--json", tmp_path / "profile.json")
    assert done.status == 0, done.err
    assert "C(N)/C(1)" in done.out
    assert "prompt_lookup" in done.out
    assert "eagle is left out" in done.err
    assert json.loads((tmp_path / "profile.json").read_text())["quick"] is True


@pytest.mark.parametrize(("words", "expected"), [(("--drafters", "eagle@chain"), "without a shape"), (("--drafters", "nobody"), "No drafter"), (("--drafters", "eagle"), "No eagle head")])  # fmt: skip
def test_profile_refuses_what_it_cannot_measure(run: Cli, tiny_folder: Path, words: tuple[str, ...], expected: str) -> None:
    done = run("profile", "--target", tiny_folder, *SMALL, *words)
    assert (done.status, expected in done.err) == (2, True)


@pytest.mark.parametrize("value", ["0", "x", "", "1,999"])
def test_sizes_are_whole_numbers(run: Cli, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("profile", "--nodes", value)
    assert "whole numbers from 1 to 256" in capsys.readouterr().err


def test_bench_explains_the_speed_up_with_the_terms_of_its_own_run(run: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    done = run("bench", "--limit", "1", "--max-new-tokens", "16", "--explain", "--json", file)
    assert done.status == 0, done.err
    (entry,) = json.loads(file.read_text())["drafters"]
    terms = entry["explained"]
    assert terms["modelled"] == pytest.approx(terms["tau"] / (terms["verify"] + terms["draft"] + terms["rule"] + terms["commit"]))
    assert terms["tau"] == entry["tau"]
    assert terms["measured"] == pytest.approx(entry["speedup"])
    assert terms["dearest"] in ("verify", "draft", "rule", "commit")
    assert "costs most" in done.out
    assert "explained" not in json.loads(run("bench", "--limit", "1", "--max-new-tokens", "2", "--json").out)["drafters"][0]


def test_decode_and_bench_say_what_auto_chose(run: Cli, tiny_folder: Path, random_heads: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    from specviz.profiling import budget

    made, target = profile({1: 30.0, 64: 30.0}), Target.load(str(tiny_folder))
    monkeypatch.setattr(budget, "costs_here", lambda target, drafter, sampled, say: (made, costs({1: 0.1, 4: 0.1})))
    head = reported_head(tmp_path / "head", random_heads("eagle"), target, {4: 1.5})
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, "target": target.fingerprint.to_json()}))
    spec = f"eagle@dynamic:nodes=auto,checkpoint={head}"
    done = run("decode", "--prompt", "one two", "--max-new-tokens", "4", "--drafter", spec)
    assert "nodes=auto -> 4 (modelled 1." in done.err
    done = run("bench", "--limit", "1", "--max-new-tokens", "4", "--drafters", spec)
    assert "nodes=auto -> 4 (modelled 1." in " ".join(done.out.split())


def test_list_tells_what_auto_chose_before(tiny_target: Target, random_heads: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models"))
    folder = tmp_path / "models" / "smollm2-135m-instruct"
    folder.mkdir(parents=True)
    head = reported_head(folder / "eagle", random_heads("eagle"), tiny_target, {4: 1.5, 8: 1.6})
    entry = next(one for one in list_verb.list_all()["drafters"] if one["name"] == "eagle")
    assert entry["auto"] is None
    assert "first use" in list_verb._remark(entry)
    checkpoint = json.loads((head / "report.json").read_text())["checkpoint"]
    here = {"target": {"name": "tiny", "fingerprint": {"weights": tiny_target.fingerprint.weights}}, "dtype": "float32", "device": {"processor": processor_name()}, "versions": {"specviz": __version__}}  # fmt: skip
    write_profile(profile({1: 30.0, 64: 31.0}, costs({1: 0.1, 8: 0.2}, checkpoint=checkpoint), setting=here))
    entry = next(one for one in list_verb.list_all()["drafters"] if one["name"] == "eagle")
    assert entry["auto"]["nodes"] == 8
    assert "nodes=auto -> 8 (modelled 1.5" in list_verb._remark(entry)
    assert "auto" not in next(one for one in list_verb.list_all()["drafters"] if one["name"] == "medusa")
