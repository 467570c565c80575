"""Shape files: what is written is read back, what is wrong is named, and the shape grows what the file lists."""

from __future__ import annotations

import json
import os

import pytest
import torch

from specviz import shapes
from specviz.build import check_spec, parse_spec
from specviz.errors import BadFile, BadInput, Missing
from specviz.registry import bind, knobs
from specviz.sampling import Sampling, Uniform
from specviz.shapes._files import FORMAT, ShapeFile, find_shape, read_shape, shape_names, write_shape
from specviz.shapes.base import MAX_NODES, Growth, Sampler
from specviz.shapes.searched import searched
from specviz.sources import DEFAULT_TARGET
from specviz.tree import TokenTree

PATHS = ((0,), (0, 0), (2,), (0, 3), (2, 1), (2, 1, 0))
GOOD = {"format": FORMAT, "name": "x", "nodes": 7, "depth": 3, "paths": [list(path) for path in PATHS]}


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    write_shape(tmp_path / DEFAULT_TARGET / "shapes" / "mine_7.json", ShapeFile("mine_7", PATHS, {"expected_length": 1.5}))
    write_shape(tmp_path / "other" / "shapes" / "mine_7.json", ShapeFile("mine_7", PATHS[:2], {}))
    return tmp_path


def growth(**more) -> Growth:
    """A draft whose token ids are their ranks, 0 the likeliest, at every node."""
    row = torch.linspace(3.0, -3.0, 40, dtype=torch.float64).log_softmax(-1)
    return Growth(7, lambda growth, nodes: row.expand(len(nodes), -1), depth_limit=9, **more)


def paths_of(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[step] for step in tree.path_to(node)) for node in range(1, len(tree))}


def test_it_grows_what_the_file_lists(models):
    assert paths_of(searched(growth(), file="mine_7")) == set(PATHS)
    assert paths_of(searched(growth(), file="other/mine_7")) == set(PATHS[:2])
    assert paths_of(searched(growth(), file=str(models / "other" / "shapes" / "mine_7.json"))) == set(PATHS[:2])


@pytest.mark.parametrize("nodes", [1, 2, 4, 7, 100])
def test_fewer_nodes_are_the_best_of_them(models, nodes):
    assert paths_of(searched(growth(), file="mine_7", nodes=nodes)) == set(PATHS[: nodes - 1])


def test_drawn_children_are_as_many_as_it_lists(models):
    tree = searched(growth(sampler=Sampler(Sampling(1.0), Uniform(0), 5, 40)), file="mine_7")
    assert len(tree) == len(PATHS) + 1
    assert sorted(len(draw.children) for draw in tree.draws) == [1, 1, 2, 2]
    assert sorted(child for draw in tree.draws for child in draw.children) == list(range(1, 7))


def test_files_are_offered_by_name(models):
    assert list(shape_names()) == ["mine_7", "other/mine_7"]
    (knob,) = [knob for knob in knobs(searched) if knob.name == "file"]
    assert knob.to_json()["offers"] == ["mine_7", "other/mine_7"]
    assert knob.to_json()["choices"] is None
    assert find_shape("mine_7").made == {"expected_length": 1.5}
    assert check_spec(parse_spec("medusa@searched:file=mine_7,nodes=3"))
    assert bind(shapes, "searched", {"file": "mine_7"}).values == {"file": "mine_7", "nodes": 0}


def test_what_is_written_is_read_back(tmp_path):
    shape = ShapeFile("a name", PATHS, {"drafter": {"name": "medusa"}, "compared": [{"name": "x", "measured": 2.0}]})
    write_shape(tmp_path / "new" / "file.json", shape)
    assert read_shape(tmp_path / "new" / "file.json") == shape
    assert (shape.nodes, shape.depth) == (7, 3)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.json"]


def test_a_file_that_was_written_anew_is_read_again(models):
    file = models / "other" / "shapes" / "mine_7.json"
    assert find_shape("other/mine_7").nodes == 3
    write_shape(file, ShapeFile("mine_7", PATHS, {}))
    os.utime(file, ns=(1, 1))
    assert find_shape("other/mine_7").nodes == 7


@pytest.mark.parametrize("name", ["nothing", "", "  ", "mine_7/", "../mine_7", "/mine_7", "other", "no/such.json", "\0", "x" * 5000, "\0.json"])
def test_a_name_that_is_not_there_is_answered_with_what_is(models, name):
    with pytest.raises((Missing, BadInput), match=r"There are: mine_7, other/mine_7.*shape search"):
        find_shape(name)
    with pytest.raises((Missing, BadInput)):
        bind(shapes, "searched", {"file": name})


def test_without_any_file_the_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    with pytest.raises(Missing, match=r"No shape file 'medusa_64'\. Search one with"):
        bind(shapes, "searched")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "specviz-shape-2"}, "is no shape file"), ({"format": None}, "is no shape file"),
        ({"paths": None}, "`paths` is missing"), ({"paths": []}, "`paths` is missing"), ({"paths": "0 00"}, "`paths` is missing"), ({"paths": {"0": 1}}, "`paths` is missing"),
        ({"paths": [[0], [-1]]}, "path 2 is no rank path"), ({"paths": [[0], [0.0]]}, "path 2 is no rank path"), ({"paths": [[True]]}, "path 1 is no rank path"),
        ({"paths": [["0"]]}, "path 1 is no rank path"), ({"paths": [[]]}, "path 1 is no rank path"), ({"paths": [0]}, "path 1 is no rank path"),
        ({"paths": [[256]]}, "path 1 is no rank path"), ({"paths": [[10**30]]}, "path 1 is no rank path"), ({"paths": [[0] * 17]}, "path 1 is no rank path"),
        ({"paths": [[0], [1, 0]]}, "path 2 comes before its parent"), ({"paths": [[0, 0], [0]]}, "path 1 comes before its parent"),
        ({"paths": [[0], [0]]}, "path 2 is listed twice"), ({"paths": [[n] for n in range(MAX_NODES)]}, "257 nodes, more than 256"),
        ({"nodes": 8}, "is damaged"), ({"depth": None}, "is damaged"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_name(tmp_path, change, told):
    (tmp_path / "bad.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(BadFile, match=told) as problem:
        read_shape(tmp_path / "bad.json")
    assert "bad.json" in str(problem.value)
    assert len(str(problem.value)) < 200


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "3", "[]", '"x"', "\udcff", "{}", '{"format": ' + "9" * 5000 + "}"])
def test_what_is_no_json_record_is_refused(tmp_path, text):
    (tmp_path / "bad.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadFile, match=r"bad\.json is no shape file"):
        read_shape(tmp_path / "bad.json")


def test_a_huge_file_is_not_read(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(BadFile, match="more than a shape file can have"):
        read_shape(tmp_path / "huge.json")


def test_nothing_that_could_not_be_read_back_is_written(tmp_path):
    with pytest.raises(BadFile, match="comes before its parent"):
        write_shape(tmp_path / "x.json", ShapeFile("x", ((1, 0),), {}))
    assert list(tmp_path.iterdir()) == []


def test_shipped_files_are_whole():
    from pathlib import Path

    files = sorted((Path(__file__).parents[2] / "models").glob("*/shapes/*.json"))
    for file in files:
        shape = read_shape(file)
        assert shape.name == file.stem
        assert shape.made["text"]["texts"] >= 100
        assert shape.made["compared"][0]["measured"] == shape.made["measured_length"]
        assert (shape.made["compared"][0]["nodes"], shape.made["compared"][0]["depth"]) == (shape.nodes, shape.depth)
