from __future__ import annotations

import pytest
import torch
from recorded import run_knowing, run_tiny
from trees import evidence_of

from specviz.acceptance.rejection import rejection
from specviz.events import Drafted, Finished, Verified, named_ids
from specviz.record import Recorder
from specviz.sampling import Sampling
from specviz.tree import Draw, Pruned, TokenTree, Top


@pytest.fixture
def recorder(tiny_target) -> Recorder:
    return Recorder(tiny_target)


def test_each_id_gets_its_text_once_when_it_is_first_named(tiny_target):
    trace, known = run_knowing(tiny_target, sampling=Sampling(0.9, seed=2))[0], set()
    for event in trace.events:
        if isinstance(event, Finished):
            continue
        assert {int(token) for token in event.strings} == named_ids(event) - known
        known |= named_ids(event)
    assert known == trace.strings.keys()


def test_drafted_carries_what_the_tree_says(recorder):
    q = torch.full((320,), 1 / 320, dtype=torch.float64)
    tree = TokenTree(
        (5, 6, 7), (-1, 0, 0), (1.0, 0.5, 0.25), draws=(Draw(0, (2,), q),), candidate=(True, False, True), source=("a", "b", "c"),
        pruned=(Pruned(9, -1, 0.1234567891),), tops=(Top(0, (6, 7), (0.5, 0.25)),), note=(("match", 3),),
    )  # fmt: skip
    event = recorder.drafted(0, 4, tree, "eagle", {"draft": 0.5})
    assert (event.round, event.tokens, event.parents, event.depths, event.ranks) == (4, (5, 6, 7), (-1, 0, 0), (0, 1, 1), (0, 0, 0))
    assert (event.scores, event.q) == ((1.0, 0.5, 0.25), (None, None, pytest.approx(1 / 320)))
    assert (event.source, event.candidate) == (("a", "b", "c"), (True, False, True))
    assert event.draws == ({"parent": 0, "children": (2,), "replace": False},)
    assert (event.pruned, event.tops, event.note) == (((9, -1, 0.12345679),), {"0": ((6, 0.5), (7, 0.25))}, {"match": 3})
    assert set(event.strings) == {"5", "6", "7", "9"}


def test_a_plain_tree_gets_empty_columns_and_the_drafters_name(recorder):
    event = recorder.drafted(0, 0, TokenTree((5, 6), (-1, 0)), "prompt_lookup", {})
    assert (event.scores, event.q, event.source, event.candidate) == ((None, None), (None, None), ("prompt_lookup",) * 2, (True, True))


TREE = TokenTree((0, 1, 2), (-1, 0, 1))
ROWS = {0: [0.1, 0.8, 0.1], 1: [0.1, 0.1, 0.8], 2: [0.2, 0.3, 0.5]}


def test_a_round_that_was_cut_has_no_bonus(recorder):
    evidence = evidence_of(TREE, ROWS, 0.0)
    verdict = rejection(TREE, evidence)
    assert verdict.path == (1, 2)
    whole = recorder.verified(0, 0, TREE, evidence, verdict, [1, 2, 2], 9)
    assert (whole.path, whole.bonus, whole.emitted, whole.committed) == ((1, 2), 2, (1, 2, 2), 9)
    cut = recorder.verified(0, 0, TREE, evidence, verdict, [1], 9)
    assert (cut.path, cut.bonus, cut.emitted) == ((1,), None, (1,))


def test_numbers_after_the_end_of_the_path_are_there_too(recorder):
    evidence = evidence_of(TREE, ROWS, 0.0)
    event = recorder.verified(0, 0, TREE, evidence, rejection(TREE, evidence), [1, 2, 2], 9)
    assert event.wanted == (1, 2, 2)
    assert event.entropy[2] is not None
    assert [token for token, _ in event.tops["2"]] == [2, 1, 0]
    assert event.tests["node"] == (1, 2)
    assert event.tests["reason"] == ("argmax", "argmax")


def test_without_detail_the_columns_are_empty(tiny_target):
    evidence = evidence_of(TREE, ROWS, 0.0)
    event = Recorder(tiny_target, detail=False).verified(0, 0, TREE, evidence, rejection(TREE, evidence), [1, 2, 2], 9)
    assert (event.verdicts, event.tests, event.p, event.tops) == ((), {}, (), {})
    assert (event.path, event.bonus) == ((1, 2), 2)


def test_the_meta_record_is_enough_to_run_again(tiny_target):
    trace = run_tiny(tiny_target, sampling=Sampling(0.5, top_p=0.9, seed=7))
    meta = trace.started().meta
    assert meta["sampling"] == {"temperature": 0.5, "top_p": 0.9, "top_k": 0, "seed": 7}
    assert meta["drafter"] == {"name": "autoregressive", "knobs": {}, "shape": None}
    assert meta["versions"]["torch"] == str(torch.__version__)
    again = run_tiny(tiny_target, sampling=Sampling(**meta["sampling"]))
    assert again.emitted() == trace.emitted()


def test_every_round_has_its_two_events(tiny_target):
    trace = run_knowing(tiny_target)[0]
    assert [type(e) for e in trace.events[2:-1]] == [Drafted, Verified] * trace.finished().rounds
