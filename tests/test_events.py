from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest
from recorded import run_tiny

from specviz.errors import BadFile
from specviz.events import KINDS, Drafted, Finished, Prefilled, Started, Verified, from_json, to_json


@pytest.fixture(scope="module")
def events(tiny_target):
    return run_tiny(tiny_target).events


def record(events, kind: str) -> dict:
    return json.loads(json.dumps(to_json(next(e for e in events if e.kind == kind))))


def test_every_event_is_json_and_comes_back(events):
    assert {e.kind for e in events} == set(KINDS)
    for event in events:
        text = json.dumps(to_json(event), allow_nan=False)
        back = from_json(json.loads(text))
        assert type(back) is type(event)
        assert to_json(back) == json.loads(text)


def test_only_plain_values_are_in_an_event(events):
    def check(value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                assert isinstance(key, str)
                check(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                check(item)
        else:
            assert value is None or type(value) in (bool, int, float, str), type(value)

    for event in events:
        for f in fields(event):
            check(getattr(event, f.name))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_become_null(value):
    event = Prefilled(0, 3, ((3, value),), {"prefill": value})
    assert to_json(event)["top"] == [[3, None]]
    assert to_json(event)["seconds"] == {"prefill": None}


def test_what_json_does_not_know_is_a_mistake_of_ours():
    import torch

    with pytest.raises(TypeError, match="Tensor"):
        to_json(Prefilled(0, torch.tensor(3), (), {}))  # type: ignore[arg-type]


def test_fields_that_are_not_known_are_ignored(events):
    assert isinstance(from_json({**record(events, "verified"), "added_later": [1, 2]}), Verified)


def test_optional_fields_may_be_missing(events):
    old = record(events, "finished")
    del old["message"], old["baseline"]
    assert from_json(old).baseline is None


BAD = [
    ("started", "prompt", 5), ("started", "prompt_ids", [1, -2]), ("started", "prompt_ids", [1, 2.5]), ("started", "prompt_ids", "12"), ("started", "meta", []),
    ("started", "strings", {"a": "b"}), ("started", "strings", {"²": "b"}), ("started", "strings", {"9" * 5000: "b"}), ("started", "strings", {"1": 2}), ("started", "strings", None),
    ("started", "max_new_tokens", "8"), ("started", "row", "0"), ("started", "row", True), ("started", "row", -1), ("started", "row", None),
    ("prefilled", "token", -1), ("prefilled", "token", None), ("prefilled", "top", 3), ("prefilled", "top", [3]), ("prefilled", "top", [[3]]), ("prefilled", "top", [[3, "x"]]),
    ("prefilled", "seconds", [1]), ("prefilled", "seconds", {"prefill": "x"}),
    ("drafted", "tokens", []), ("drafted", "tokens", 7), ("drafted", "tokens", None), ("drafted", "parents", None), ("drafted", "parents", [-1, 5]), ("drafted", "depths", ["x"]),
    ("drafted", "round", "1"), ("drafted", "round", -1), ("drafted", "scores", {}), ("drafted", "source", [1]), ("drafted", "candidate", ["yes"]), ("drafted", "pruned", 4),
    ("drafted", "pruned", [[1, 2]]), ("drafted", "pruned", [[1, 999, 0.5]]), ("drafted", "pruned", [["a", 0, 0.5]]), ("drafted", "draws", 1), ("drafted", "draws", [1]),
    ("drafted", "draws", [{"parent": 99, "children": [1], "replace": False}]), ("drafted", "draws", [{"parent": 0, "children": ["x"], "replace": False}]),
    ("drafted", "tops", {"99": []}), ("drafted", "tops", {"0": [1]}), ("drafted", "tops", {"0": [[1, None, 2]]}), ("drafted", "tops", {"x": []}), ("drafted", "note", []),
    ("verified", "path", [0]), ("verified", "path", [99]), ("verified", "path", 3), ("verified", "path", ["x"]), ("verified", "bonus", "x"), ("verified", "bonus", -4), ("verified", "bonus_source", 3),
    ("verified", "emitted", [None]), ("verified", "emitted", None), ("verified", "committed", "x"), ("verified", "verdicts", None), ("verified", "verdicts", [1]),
    ("verified", "p", ["x"]), ("verified", "p", []), ("verified", "entropy", None), ("verified", "wanted", ["x"]), ("verified", "wanted", [0.5]), ("verified", "target_rank", [True]),
    ("verified", "tests", []), ("verified", "tests", {"node": 3}), ("verified", "tests", {"node": [99]}), ("verified", "tests", {"node": [1, 2], "p": [0.5]}),
    ("verified", "tests", {"node": [1], "p": ["x"]}), ("verified", "tests", {"node": [1], "verdict": [3]}),
    ("finished", "reason", "bored"), ("finished", "reason", ["eos"]), ("finished", "tokens", [1.5]), ("finished", "text", None), ("finished", "rounds", "x"), ("finished", "message", 3),
    ("finished", "baseline", []), ("finished", "seconds", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "value"), BAD, ids=lambda value: str(value)[:24])
def test_a_field_of_the_wrong_kind_is_refused_by_name(events, kind, name, value):
    old = record(events, kind)
    if (
        isinstance(value, list)
        and isinstance(old[name], list)
        and name in ("depths", "source", "candidate", "verdicts", "p", "wanted", "target_rank")
        and value
    ):
        value = [*value, *old[name][1:]]  # one wrong entry in a column of the right length
    with pytest.raises(BadFile) as problem:
        from_json({**old, name: value})
    assert name in str(problem.value) or "tree" in str(problem.value) or "0 entries" in str(problem.value)


@pytest.mark.parametrize("value", [None, 3, "text", [], {}, {"event": "party"}, {"event": ["drafted"]}, {"event": {}}, {"event": "drafted"}])
def test_what_is_no_event_is_refused(value):
    with pytest.raises(BadFile):
        from_json(value)


def test_a_token_of_a_passed_round_may_be_missing_from_its_columns(events):
    lean = replace(next(e for e in events if isinstance(e, Verified)), verdicts=(), tests={}, p=(), p_warped=(), target_rank=(), entropy=(), wanted=(), tops={})
    assert from_json(json.loads(json.dumps(to_json(lean)))).verdicts == []


def test_kinds_are_the_five():
    assert {"started": Started, "prefilled": Prefilled, "drafted": Drafted, "verified": Verified, "finished": Finished} == KINDS
