"""Ranks of the text's tokens against the heads' own logits, and lengths walked on ranks against a replay of the same tree."""

from __future__ import annotations

import json
from functools import reduce
from operator import add

import pytest
import torch

from specviz.analysis.tree_search import count_ranks, grow_tree, measured_length, product_paths
from specviz.build import Spec, build_drafter, parse_spec
from specviz.errors import BadInput
from specviz.shapes._files import ShapeFile, write_shape
from specviz.shapes.eagle_25 import PATHS as EAGLE_PATHS
from specviz.sources import Fingerprint
from specviz.training.features import capture
from specviz.training.fixed_text import Question, fixed_text, keep_states
from specviz.training.greedy_text import GreedyText, captured_texts, fixed_texts, newest_capture
from specviz.training.ranks import DEPTH, OUTSIDE, RankReader, static_trees
from specviz.training.replay import Replayed, replay

WIDE = (8, 4, 2)  # random heads are rarely right: a wide tree accepts now and then
HEADS = ["medusa", "eagle"]


@pytest.fixture(scope="module")
def texts(tiny_target, text_ids):
    """Random tokens with the target's states: a replay does not ask who wrote them."""
    made = []
    for seed in range(3):
        ids = text_ids(48, seed=seed)
        hidden = tiny_target.prefill(ids, tiny_target.new_cache(1, len(ids)), 0, (tiny_target.layers,)).hidden
        made.append(GreedyText(ids, 6, {tap: states[0] for tap, states in hidden.items()}))
    return made


@pytest.fixture
def reader(tiny_target, random_heads):
    return lambda name: RankReader(tiny_target, Spec(name, None, {"checkpoint": str(random_heads(name))}))


def test_ranks_of_heads_are_places_in_their_own_logits(reader, texts):
    found = reader("medusa")
    ranks, text = found.read(texts[0]), texts[0]
    vocabulary = found.drafter.rows.vocabulary.tolist()
    assert [len(row) for row in ranks] == [4] * 38 + [3, 2, 1]
    for place, row in enumerate(ranks):
        root = text.start + place
        log_q = found.drafter.log_q(text.states[found.drafter.taps[0]][root - 1])
        for head, rank in enumerate(row):
            token = text.ids[root + 1 + head]
            if token not in vocabulary:
                assert rank == OUTSIDE
                continue
            values = log_q[head].tolist()
            # the place among the sorted values, not an argsort's: equal values have no order
            assert rank == sorted(values, reverse=True).index(values[vocabulary.index(token)])
    assert {OUTSIDE} < {rank for row in ranks for rank in row}


@pytest.mark.parametrize("name", HEADS)
def test_a_walk_on_ranks_is_the_replay_of_the_tree(name, reader, texts, tiny_target, random_heads, tmp_path):
    found = reader(name)
    ranks = [found.read(text) for text in texts]
    assert max(len(row) for row in ranks[0]) == (4 if name == "medusa" else DEPTH)
    grown = grow_tree(count_ranks(ranks).accuracy, 40)
    write_shape(tmp_path / "grown.json", ShapeFile("grown", grown, {}))
    trees = {
        f"searched:file={tmp_path / 'grown.json'}": grown,
        f"cartesian:widths={'-'.join(map(str, WIDE))}": product_paths(WIDE),
        "eagle_25:": [tuple(map(int, path)) for path in EAGLE_PATHS.split()],
    }
    lengths = []
    for shape, paths in trees.items():
        comma = "" if shape.endswith(":") else ","
        drafter = build_drafter(tiny_target, parse_spec(f"{name}@{shape}{comma}checkpoint={random_heads(name)}"))
        replayed = reduce(add, (replay(drafter, text.ids, text.start, text.states) for text in texts), Replayed())
        walked = measured_length(paths, ranks)
        assert (walked.tokens, walked.rounds) == (replayed.tokens, replayed.rounds)
        lengths.append(walked.mean)
    assert max(lengths) > 1.0, "no tree ever accepted: the comparison says nothing"


def test_published_trees_are_read_off_their_shapes():
    trees = static_trees()
    assert {"eagle_25", "medusa_63"} <= set(trees)
    assert set(trees["eagle_25"]) == {tuple(map(int, path)) for path in EAGLE_PATHS.split()}
    assert len(trees["medusa_63"]) == 63
    assert (1, 0, 0) in trees["medusa_63"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [("prompt_lookup", "has no trained head.*eagle"), ("autoregressive", "has no trained head"), ("medusa@chain", "cannot name one"), ("medusa:nodes=4", "cannot name one")],
)  # fmt: skip
def test_only_a_trained_head_without_a_shape_is_searched_for(tiny_target, spec, told):
    with pytest.raises(BadInput, match=told):
        RankReader(tiny_target, parse_spec(spec))


@pytest.fixture(scope="module")
def features(tmp_path_factory, tiny_folder, text_ids):
    path = tmp_path_factory.mktemp("data") / "records.jsonl"
    lines = [{"ids": text_ids(20 + n % 5, seed=n), "answer_start": 5, "temperature": float(n % 2)} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return capture([path], tmp_path_factory.mktemp("features"), target=str(tiny_folder), shards=2, say=lambda text: None)


def test_held_out_greedy_records_are_read(features, reader, monkeypatch):
    drafter, weights = reader("eagle").drafter, features.fingerprint.weights
    monkeypatch.setattr(drafter.target, "fingerprint", features.fingerprint)  # the same weights, hashed from their file
    drafter.config.training["held_out"] = 0.5
    found = list(captured_texts([features.folder], drafter))
    assert 4 < len(found) < 16  # half of 20
    assert all(set(text.states) == {3} and len(text.states[3]) == len(text.ids) for text in found)
    assert len(list(captured_texts([features.folder, features.folder], drafter))) == 2 * len(found)
    assert len(list(captured_texts([features.folder] * 2, drafter, limit=len(found) + 1))) == len(found) + 1
    drafter.config.training["held_out"] = 0.0
    assert list(captured_texts([features.folder], drafter)) == []
    assert newest_capture(features.folder.parent, weights) == features.folder
    assert newest_capture(features.folder.parent, "0000") is None


def test_features_that_do_not_fit_are_refused(features, reader, monkeypatch):
    drafter = reader("eagle").drafter
    monkeypatch.setattr(drafter.target, "fingerprint", Fingerprint("0123456789abcdef"))
    with pytest.raises(BadInput, match="are of weights"):
        captured_texts([features.folder], drafter)
    monkeypatch.setattr(drafter.target, "fingerprint", features.fingerprint)
    drafter.taps = (2, 9)
    with pytest.raises(BadInput, match="lack tap 9"):
        captured_texts([features.folder], drafter)


def test_answers_of_a_fixed_text_are_read(tiny_target, tmp_path):
    questions = [Question(tuple(tiny_target.encode(prompt))) for prompt in ("one two", "to be or")]
    text = fixed_text(tiny_target, questions, "mine", max_new_tokens=9, out=tmp_path, say=lambda text: None)
    keep_states(tiny_target, text, (3,), say=lambda text: None)
    found = list(fixed_texts(text, (3,)))
    assert [tuple(one.ids[: one.start]) for one in found] == [one.ids for one in questions]
    assert all(torch.isfinite(one.states[3]).all() and len(one.states[3]) == len(one.ids) for one in found)
