"""What a person meets who gives commands damaged files, impossible numbers or places that cannot be written: one sentence, before any work."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixture import Cli, run_fixture  # noqa: F401
from head_reports import make_report

from specviz import cli
from specviz.analysis.gate import compare_reports
from specviz.analysis.head_report import from_json
from specviz.checks import odd_in_meta
from specviz.commands.base import dump
from specviz.commands.terminal import Terminal
from specviz.errors import BadFile, BadInput, Missing
from specviz.events import Started
from specviz.trace import Trace
from specviz.training.data import check_tokens, read_records
from specviz.training.dataset import Dataset
from specviz.training.features import capture, check_origin, open_capture
from specviz.training.loop import Plan
from specviz.training.method_knobs import check_knobs

GOOD = {"ids": list(range(10, 40)), "answer_start": 20}
META = {"fingerprint": {"weights": "abcd"}, "data": "x", "taps": [2], "width": 4, "shards": 1}


def captured(folder: Path, meta: Any = META, shard: Any = (GOOD,)) -> Path:
    """A capture folder with one shard; text is written as it is, everything else as JSON."""
    folder.mkdir()
    for name, held in (("capture.json", meta), ("0000.json", shard)):
        (folder / name).write_text(held if isinstance(held, str) else json.dumps(held))
    np.save(folder / "0000-tap2.npy", np.zeros((30, 4), np.float16))
    return folder


# ---- training records and captures


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (json.dumps(GOOD)[:30], "line 1 is no JSON"), ("[" * 100_000, "is no JSON"), ("7", "no training record but 7"), ('{"ids": [1, 2]}', "answer_start is 0"),
        ('{"ids": "123", "answer_start": 1}', "ids is '123'"), ('{"ids": [1, 2.5], "answer_start": 1}', "ids holds 2.5"),
        ('{"ids": [1, -5], "answer_start": 1}', "ids holds -5"), ('{"ids": [1, 99999999999], "answer_start": 1}', "ids holds 99999999999"),
        ('{"ids": [1, Infinity], "answer_start": 1}', "ids holds inf"), ('{"ids": [1, 2], "answer_start": 1e400}', "answer_start is inf"),
        ('{"ids": [1, 2], "answer_start": 3}', "does not fit 2 ids"), ('{"ids": [1, 2], "answer_start": 1, "temperature": "hot"}', "temperature is 'hot'"),
        ('{"ids": [1, 2], "answer_start": 1, "prompt_source": 5}', "prompt_source is 5"), ('{"ids": [], "answer_start": 1}', "ids is []"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_named_by_line_and_field(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "x.jsonl").write_text(line + "\n")
    with pytest.raises(BadFile) as problem:
        read_records([tmp_path / "x.jsonl"])
    assert told in str(problem.value)
    assert "x.jsonl line 1" in str(problem.value)


def test_files_that_hold_no_lines_are_named(tmp_path: Path) -> None:
    whole = gzip.compress((json.dumps(GOOD) + "\n").encode() * 50)
    for name, held in (("cut.jsonl.gz", whole[: len(whole) // 2]), ("no.jsonl.gz", b"text"), ("bytes.jsonl", b"\xff\xfe\x80")):
        (tmp_path / name).write_bytes(held)
        with pytest.raises(BadFile, match=name):
            read_records([tmp_path / name])
    with pytest.raises(Missing, match="expected a file"):
        read_records([tmp_path])


@pytest.mark.parametrize(
    "changed",
    [
        {"shards": "x"}, {"shards": -1}, {"shards": 10**12}, {"shards": None}, {"taps": "abc"}, {"taps": []}, {"taps": 5}, {"width": "x"}, {"data": 5},
        {"fingerprint": "abc"}, {"fingerprint": {}}, {"fingerprint": {"weights": 5}},
    ],
)  # fmt: skip
def test_a_damaged_capture_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(BadFile, match=r"capture\.json is damaged"):
        open_capture(captured(tmp_path / "x", {**META, **changed}))
    with pytest.raises(BadFile, match=r"capture\.json is damaged"):
        open_capture(captured(tmp_path / "deep", "[" * 100_000))


@pytest.mark.parametrize("shard", ["[", "5", {"a": 1}, [None], [{"ids": [1, 2]}], [{**GOOD, "ids": "abc"}], [{**GOOD, "answer_start": 1000}], "[" * 100_000])
def test_a_damaged_shard_is_named(tmp_path: Path, shard: Any) -> None:
    with pytest.raises(BadFile, match=r"0000\.json"):
        open_capture(captured(tmp_path / "x", META, shard)).records(0)


@pytest.mark.parametrize("held", [b"", b"\x93NUMPY", b"text", np.zeros((30, 3), np.float16), np.zeros((30, 4)), np.zeros(5, np.float16)])
def test_damaged_states_are_named(tmp_path: Path, held: Any) -> None:
    found = open_capture(captured(tmp_path / "x"))
    if isinstance(held, bytes):
        (found.folder / "0000-tap2.npy").write_bytes(held)
    else:
        np.save(found.folder / "0000-tap2.npy", held)
    with pytest.raises(BadFile, match="0000-tap2"):
        found.rows(0, 2)
    with pytest.raises(BadInput, match="lack tap 9"):
        found.rows(0, 9)


def test_rows_and_records_must_agree(tmp_path: Path) -> None:
    import torch

    found = open_capture(captured(tmp_path / "x", META, [GOOD, GOOD]))
    with pytest.raises(BadFile, match="60 tokens but 30 rows"):
        Dataset([found], [2], torch.tensor([1]), 100, 0.5)


def test_records_of_another_model_are_refused(tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({**GOOD, "ids": [*GOOD["ids"], 999]}) + "\n")  # type: ignore[misc]
    with pytest.raises(BadInput, match="token 999, but the target has 320"):
        check_tokens(read_records([tmp_path / "x.jsonl"]), 320)
    with pytest.raises(BadInput, match="token 999"):
        capture([tmp_path / "x.jsonl"], tmp_path, target=str(tiny_folder), shards=1)
    with pytest.raises(BadInput, match="cannot fill 16 shards"):
        capture([tmp_path / "x.jsonl"], tmp_path, target=str(tiny_folder))
    with pytest.raises(BadInput, match="were captured from abcd"):
        check_origin(open_capture(captured(tmp_path / "c")), tiny_folder)


def test_show_batch_refuses_in_one_line(run: Cli, tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({**GOOD, "ids": [*GOOD["ids"], 999]}) + "\n")  # type: ignore[misc]
    plan = ("--plan", "held_out=0.0", "--target", tiny_folder, "--show-batch")
    told = run("train", "medusa", "--data", tmp_path / "x.jsonl", *plan)
    assert (told.status, "names token 999" in told.err) == (2, True)
    told = run("train", "medusa", "--features", captured(tmp_path / "c"), *plan)
    assert (told.status, "captured from abcd" in told.err) == (2, True)


# ---- numbers, knobs and places


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["profile", "--drafters", ","], "names no drafter"), (["profile", "--drafters", ""], "names no drafter"),
        (["decode", "--prompt", "x", "--drafter", "eagle@dynamic:nodes=4,nodes=5"], "gives 'nodes' twice"),
        (["decode", "--prompt", "x", "--shape.nodes", "4", "--shape.nodes", "5"], "--shape.nodes is given twice"),
        (["decode", "--prompt", "x", "--drafter", "eagle@dynamic:nodes=4", "--shape.nodes", "5"], "'nodes' is given by --drafter"),
        (["decode", "--prompt", "x", "--trace", "/proc/x"], "Cannot write /proc/x"), (["bench", "--json", "/proc/x"], "Cannot write /proc/x"),
        (["report", "eagle", "--features", "x", "--nodes", "4"], "--nodes belongs to the full report"),
        (["report", "eagle", "--features", "x", "--allow-missing"], "--allow-missing belongs to the release gate"),
        (["report", "--against", "x", "--prompts", "y"], "measures nothing"), (["report", "--against", "x", "--max-drop", "1"], "from 0 and below 1"),
        (["report", "eagle", "--prompts", "x", "--out", "/etc/passwd"], "/etc/passwd is a file"),
        (["report", "eagle", "--prompts", "x", "--out", "/etc/passwd/x"], "/etc/passwd is a file"),
        (["train", "medusa", "--features", "x", "--out", "/etc/passwd"], "/etc/passwd is a file"),
        (["train", "medusa", "--features", "x", "--knob", "bogus=1"], "has no knob 'bogus'"),
        (["train", "medusa", "--features", "x", "--knob", "heads=0"], "whole number from 1"),
        (["train", "medusa", "--features", "x", "--plan", "epochs=1", "--plan", "epochs=2"], "gives 'epochs' twice"),
        (["train", "all", "--own", "3", "--work", "/etc/passwd"], "/etc/passwd is a file"),
        (["train", "all", "--own", "3", "--knob", "eagle.unroll=1", "--knob", "eagle.unroll=2"], "'eagle.unroll' twice"),
    ],
)  # fmt: skip
def test_it_is_said_before_anything_is_done(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["train", "all", "--own", "-5"], ["profile", "--repeats", "99999"], ["profile", "--nodes", "1,²"], ["bench", "--limit", "²"]]
)
def test_counts_are_whole_numbers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(words)
    assert words[-1] in capsys.readouterr().err


@pytest.mark.parametrize("odd", [{"betas": 5}, {"betas": [2, 3]}, {"betas": ["a", "b"]}, {"stop_after": -1}, {"stop_after": "x"}])
def test_a_plan_is_checked_in_every_part(odd: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(odd))):
        Plan(**odd)
    assert Plan(betas=[0.9, 0.95], stop_after=3).stop_after == 3  # type: ignore[arg-type]  # as JSON gives them


def test_a_method_says_which_knobs_it_has() -> None:
    check_knobs("eagle3", {"unroll": 4, "residual": False, "decay": 0.5})
    for knobs in ({"unroll": 2.5}, {"residual": 1}, {"decay": -1.0}, {"decay": float("nan")}, {"frozen": 1}):
        with pytest.raises(BadInput, match=next(iter(knobs))):
            check_knobs("eagle3", knobs)


def test_more_tokens_than_the_context_cannot_be_cached(run: Cli, tiny_folder: Path) -> None:
    told = run("profile", "--quick", "--cached", "999999", "--drafters", "none", "--target", tiny_folder)
    assert (told.status, "--cached 999999 does not fit" in told.err) == (2, True)


# ---- what comes from files is shown, never obeyed


def test_a_report_s_words_are_harmless() -> None:
    record = make_report(training={"note": "\x1b[2J", "deep": [{"\x9bx": "\x07"}]}).to_json()
    record["text"]["name"] = "\x1b]0;title\x07.jsonl"
    record["greedy"][0]["categories"] = {"\x1b[31mchat": 1.5}
    report = from_json(json.loads(json.dumps(record)))
    assert report.text.name == "\\x1b]0;title\\x07.jsonl"
    assert list(report.greedy[0].categories) == ["\\x1b[31mchat"]
    assert report.training == {"note": "\\x1b[2J", "deep": [{"\\x9bx": "\\x07"}]}


def test_no_control_character_reaches_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    held = io.StringIO()
    console, table = Terminal(file=held, width=80), Table("name")
    table.add_row("\x1b[2Jcell\x9b")
    console.print("a\x1b[31mb\n\x07", markup=False)
    console.print(table)
    assert not {"\x1b", "\x9b", "\x07"} & set(held.getvalue())
    assert "a\\x1b[31mb\n" in held.getvalue()
    assert "\x9b" not in dump({"name": "\x9b2J"})
    assert json.loads(dump({"name": "\x9b2J"})) == {"name": "\x9b2J"}
    assert cli.main(["trace", "/nope\x1b[2J.jsonl"]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("meta", "odd"),
    [
        ({"drafter": 7}, "drafter"), ({"drafter": {"name": 5}}, "drafter"), ({"drafter": {"shape": [1]}}, "drafter"), ({"drafter": {"warnings": "x"}}, "drafter"),
        ({"sampling": [1]}, "sampling"), ({"sampling": {"temperature": "hot"}}, "sampling"), ({"rule": None}, "rule"), ({"rule": {"lossless": "no"}}, "rule"),
        ({"target": {"name": []}}, "target"), ({"device": "cpu"}, "device"), ({"versions": 5}, "versions"), ({"dtype": 5}, "dtype"), ({"seed": "x"}, "seed"),
        ({"drafter": {"name": "x", "shape": None, "more": [1]}, "own": 5}, None), ({}, None),
    ],
)  # fmt: skip
def test_a_trace_s_meta_is_checked_when_it_is_read(meta: dict[str, Any], odd: str | None) -> None:
    assert odd_in_meta(meta) == odd
    text = Trace([Started(0, "", (), 1, meta)]).dumps()
    if odd is None:
        assert Trace.loads(text).started().meta == meta
        return
    with pytest.raises(BadFile, match=f"{odd!r} in 'meta'"):
        Trace.loads(text)


# ---- the release gate


def test_a_number_that_is_gone_fails_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = make_report()
    gone = replace(old, greedy=old.greedy[:2])
    few = replace(old, greedy=(old.greedy[0], replace(old.greedy[1], reached=(400, 20, 0), accepted=(320, 10, 0)), old.greedy[2]))
    kind = replace(old, greedy=(old.greedy[0], replace(old.greedy[1], categories={"chat": 2.0}), old.greedy[2]))
    (tmp_path / "old.json").write_text(json.dumps(old.to_json()))
    for new, told in (
        (gone, "nodes=60"),
        (few, "depth 2 was tested in fewer"),
        (kind, "category code has no round"),
        (replace(old, sampled=()), "temperature 0.7"),
    ):
        assert any(told in text for text in compare_reports(old, new).missing)
        (tmp_path / "new.json").write_text(json.dumps(new.to_json()))
        words = ["report", "--against", str(tmp_path / "old.json"), str(tmp_path / "new.json")]
        assert cli.main(words) == 3
        assert "MISSING" in capsys.readouterr().out
        assert cli.main([*words, "--allow-missing"]) == 0
    assert compare_reports(old, old).missing == ()
