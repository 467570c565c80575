"""`trace` in the terminal: which rounds, the tree and its marks, hostile token text, and output without torch or a reader."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_fixture import Cli, run_fixture  # noqa: F401
from recorded import round_of, trace_of
from rich.console import Console

from specviz import cli
from specviz.commands.show import Writer, flowing, quoted
from specviz.trace import Trace


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    hostile = "[red]\x1b[31mred\x1b[0m\n<img>"
    rounds = [round_of(n, (-1, 0, 0, 1), (1,), text=hostile, pruned=[(10, 0, 0.25)]) for n in range(5)]
    return trace_of(*rounds).save(tmp_path / "t.jsonl")


def test_trace_shows_the_first_rounds_and_says_how_to_see_the_others(run: Cli, saved: Path) -> None:
    out = run("trace", saved).out
    assert "Round 1: 4 nodes, 1 accepted, 2 tokens" in out
    assert "Round 3" in out
    assert "Round 4" not in out
    assert "2 more rounds: --rounds 4-5, or --rounds all." in out
    assert "2.00 tokens per target forward" in out


@pytest.mark.parametrize(
    ("words", "shown"), [(["--round", "4"], [4]), (["--rounds", "2-4"], [2, 3, 4]), (["--rounds", "all"], [1, 2, 3, 4, 5]), (["--rounds", "5"], [5])]
)
def test_trace_shows_the_rounds_asked_for(run: Cli, saved: Path, words: list[str], shown: list[int]) -> None:
    out = run("trace", saved, *words).out
    assert [n for n in range(1, 7) if f"Round {n}:" in out] == shown


@pytest.mark.parametrize("words", [["--round", "6"], ["--rounds", "3-1"], ["--rounds", "x"], ["--rounds", "0-2"]])
def test_trace_refuses_rounds_that_are_not_there(run: Cli, saved: Path, words: list[str]) -> None:
    done = run("trace", saved, *words)
    assert done.status == 2
    assert "rounds 1 to 5" in done.err


def test_the_tree_carries_marks_guides_and_reasons(run: Cli, tmp_path: Path) -> None:
    out = run("trace", trace_of(round_of(0, (-1, 0, 0, 1), (1,))).save(tmp_path / "t.jsonl"), "--round", "1").out
    marks = [line.strip()[0] for line in out.splitlines() if "not_argmax" in line or "(argmax)" in line]
    assert marks == ["+", "x", "x"]
    assert "├" in out
    assert "└" in out


def test_a_terminal_never_obeys_the_text_of_a_token(run: Cli, saved: Path) -> None:
    out = run("trace", saved, "--rounds", "all").out
    assert "\x1b" not in out
    assert "[red]\\x1b[31mre" in out
    events = list(Trace.load(saved).events)
    events[2] = replace(events[2], note={"\x1b[2J": "\x1b]0;x\x07"}, pruned=[[10, 0, None]])  # type: ignore[arg-type]
    events[3] = replace(events[3], verdicts=["\x1b[5m"] * 4, bonus_source="\x9b2J", tests={"node": [1], "reason": ["\x1b[7m"]})  # type: ignore[arg-type]
    hostile = Trace([replace(events[0], meta={"drafter": {"name": "\x1b[1m"}, "device": {"name": "\x1b"}}, prompt="\x1b"), *events[1:]])  # type: ignore[arg-type]
    out = run("trace", hostile.save(saved), "--round", "1").out
    assert "\x1b" not in out
    assert "\x9b" not in out
    assert "note: \\x1b[2J" in out
    assert quoted("a\tb\x07\x9b") == "'a\\tb\\x07\\x9b'"
    assert flowing("a\tb\n\x1b]0;title") == "a\tb\n\\x1b]0;title"


def test_the_writer_joins_characters_that_several_tokens_make_up() -> None:
    console = Console(file=io.StringIO(), width=80)
    writer = Writer(console)
    for text in ("a ", "<0xE2><0x82>", "<0xAC>", " b", "<0xE2>", "x", "<0xF0><0x9F>"):
        writer.write(text)
    writer.close()
    assert console.file.getvalue() == "a € b<0xE2>x<0xF0><0x9F>\n"  # type: ignore[attr-defined]


def python(*words: str, **options: Any) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, **options)


def test_help_and_trace_do_without_torch(saved: Path) -> None:
    code = f"import sys; from specviz.cli import main; main(['trace', {str(saved)!r}]); sys.exit('torch' in sys.modules or 'plotly' in sys.modules)"
    done = python("-c", code)
    out, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (0, "")
    assert "Round 1" in out


def test_a_reader_that_leaves_ends_the_output_quietly() -> None:
    done = python("-m", "specviz", "list", "--json")
    assert done.stdout is not None
    assert done.stderr is not None
    done.stdout.close()
    with done.stderr:
        assert done.stderr.read() == ""
    assert done.wait(timeout=120) == 0
