"""`shape search` in this process on the saved tiny model: what it prints and writes, that the file decodes, how it fails."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from cli_fixture import Cli, run_fixture  # noqa: F401

from specviz.shapes._files import read_shape

PROMPTS = "one two three\nto be or not\nthe cat sat\nfor i in range\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path, random_heads: Any) -> Path:
    """A folder to work in, with a models folder of its own that holds the tiny target and a random medusa head."""
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("SPECVIZ_TARGET", "tiny")
    shutil.copytree(tiny_folder, tmp_path / "models" / "tiny")
    shutil.copytree(random_heads("medusa"), tmp_path / "models" / "tiny" / "medusa")
    (tmp_path / "p.txt").write_text(PROMPTS)
    monkeypatch.chdir(tmp_path)
    warnings.filterwarnings("ignore", message="The medusa head was trained against another target")
    return tmp_path


WORDS = ("search", "--drafter", "medusa", "--nodes", "12", "--prompts", "p.txt", "--max-new-tokens", "40")


def test_a_search_writes_a_shape_that_decodes(run: Cli, place: Path) -> None:
    done = run("shape", *WORDS, "--json")
    told = json.loads(done.out)
    file = place / "models" / "tiny" / "shapes" / "medusa_12.json"
    assert json.loads(file.read_text()) == told
    shape = read_shape(file)
    assert (told["format"], told["name"], shape.name) == ("specviz-shape-1", "medusa_12", "medusa_12")
    assert 2 <= shape.nodes == told["nodes"] <= 12
    assert told["drafter"]["name"] == "medusa"
    assert len(told["drafter"]["checkpoint"]) == len(told["target"]["weights"]) == 16
    assert told["text"]["name"] == "p.txt"
    assert told["text"]["texts"] == 4
    names = [tree["name"] for tree in told["compared"]]
    assert names[0] == "medusa_12"
    assert sum(name.startswith("dense ") for name in names) >= 1
    assert {"medusa_63", "eagle_25"} <= set(names)
    assert told["measured_length"] == told["compared"][0]["measured"] >= 1.0
    decoded = run("decode", "--target", "tiny", "--drafter", "medusa@searched:file=tiny/medusa_12", "--prompt", "one two", "--max-new-tokens", "8", "--json")
    assert json.loads(decoded.out)["drafter"]["shape"]["knobs"] == {"file": "tiny/medusa_12", "nodes": 0}


def test_a_search_prints_its_tables_and_how_to_use_it(run: Cli, place: Path) -> None:
    done = run("shape", *WORDS, "--out", "mine.json")
    assert done.status == 0
    assert read_shape(place / "mine.json").name == "mine"
    assert all(word in done.out for word in ("expected", "measured", "medusa_63", "dense", "rank 0", "medusa@searched:file=mine.json"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--drafter", "prompt_lookup"], "has no trained head"),
        (["--drafter", "medusa@chain"], "cannot name one"),
        (["--drafter", "eagle"], "No eagle head in"),
        (["--drafter", "medusa", "--nodes", "1"], "--nodes 1 is out of range. Expected 2 to 256"),
        (["--drafter", "medusa", "--nodes", "257"], "out of range"),
        (["--drafter", "medusa", "--out", "x.txt"], "does not end in .json"),
        (["--drafter", "medusa", "--out", "no/such/x.json"], "There is no folder"),
        (["--drafter", "medusa"], "No features of tiny in runs/features"),
        (["--drafter", "medusa", "--features", "nowhere"], "No captured features in nowhere"),
        (["--drafter", "medusa", "--prompts", "p.txt", "--limit", "1"], "needs two at least"),
        (["--drafter", "medusa", "--prompts", "none.txt"], "Could not read the prompts"),
        (["--drafter", "medusa", "--shape.nodes", "3"], "is not an option of 'shape'"),
    ],
)
def test_a_search_that_cannot_be_made_is_one_clear_line(run: Cli, place: Path, words: list[str], told: str) -> None:
    done = run("shape", "search", *words)
    lines = [line for line in done.err.splitlines() if line.startswith("specviz: ")]
    assert (done.status, done.out, len(lines)) == (2, "", 1)
    assert told in lines[0]
    assert not (place / "models" / "tiny" / "shapes").exists()
