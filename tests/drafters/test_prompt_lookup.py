from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from specviz.drafters.base import Feedback
from specviz.drafters.prompt_lookup import PAYS, SHORT, PromptLookup, Thrift
from specviz.sampling import Sampling, Uniform
from specviz.tree import TokenTree


def feedback(tokens, room: int = 50) -> Feedback:
    return Feedback(0, tuple(tokens), (), {}, None, Sampling(), Uniform(0), room)


def first(target, tokens, room: int = 50, **knobs):
    return next(PromptLookup(target, **knobs).draft([feedback(tokens, room)]))[0]


def test_it_copies_what_followed_the_longest_match(tiny_target):
    tree = first(tiny_target, [1, 2, 3, 4, 5, 9, 3, 7, 2, 3], ngram=2, length=3)
    assert tree.tokens == (3, 4, 5, 9)  # "2 3" beats the later "3"
    assert tree.parents == (-1, 0, 1, 2)
    assert dict(tree.note) == {"match": 2, "origin": 3, "gain": 0.5}


def test_of_equal_matches_the_latest_counts(tiny_target):
    assert first(tiny_target, [3, 4, 3, 5, 3], length=1).tokens == (3, 5)


def test_without_a_match_the_root_stands_alone(tiny_target):
    tree = first(tiny_target, [1, 2, 3])
    assert (tree.tokens, dict(tree.note)) == ((3,), {"match": 0, "origin": None, "gain": 0.5})
    assert first(tiny_target, [7]).tokens == (7,)


def test_a_repeated_token_is_found_beside_itself(tiny_target):
    tree = first(tiny_target, [5, 5, 5, 5], ngram=3, length=8)
    assert dict(tree.note) == {"match": 3, "origin": 3, "gain": 0.5}
    assert tree.tokens == (5, 5)  # only what is written can be copied


@pytest.mark.parametrize(("room", "copied"), [(0, 0), (2, 2), (50, 4)])
def test_it_copies_no_more_than_fits(tiny_target, room, copied):
    assert len(first(tiny_target, [1, 2, 3, 4, 5, 1], room, length=4, pause=0)) == 1 + copied


def test_the_index_grows_with_the_text_as_if_it_were_made_anew(tiny_target):
    rng, drafter = Random(0), PromptLookup(tiny_target, ngram=3, length=5, pause=0)
    text = [rng.randrange(4) for _ in range(10)]
    flow = drafter.draft([feedback(text)])
    grown = next(flow)[0]
    for _ in range(40):
        anew = first(tiny_target, text, ngram=3, length=5, pause=0)
        assert (grown.tokens, grown.note[:2]) == (anew.tokens, anew.note[:2])
        text += [rng.randrange(4) for _ in range(rng.randrange(1, 5))]
        grown = flow.send([feedback(text)])[0]


# -- thrift


def drive(target, text, written, **knobs) -> list[TokenTree]:
    """Returns the trees of a run whose target writes `written` after `text`, whatever is drafted."""
    whole, known, path = [*text, *written], len(text), ()
    flow, trees = None, []
    while known < len(whole):
        seen = [replace(feedback(whole[:known], len(whole) - known - 1), path=path)]
        flow, tree = (flow, flow.send(seen)[0]) if flow else (started := PromptLookup(target, **knobs).draft(seen), next(started)[0])
        right = next((n for n, token in enumerate(tree.tokens[1:]) if token != whole[known + n]), len(tree) - 1)
        path, known = tuple(range(1, right + 1)), known + right + 1
        trees.append(tree)
    return trees


def copied(trees) -> list[int]:
    """Returns how much was copied in each round that found a match."""
    return [len(tree) - 1 for tree in trees if dict(tree.note)["match"]]


TEXT = list(range(10, 60))
MISLEADING = [token for block in range(100, 4100, 100) for token in (7, *range(block, block + 10))]  # after each 7 comes what never came before


def test_copies_that_are_never_accepted_stay_short_then_pause_and_are_tried_again(tiny_target):
    trees = drive(tiny_target, [7, *TEXT], MISLEADING, pause=4)
    assert set(copied(trees)) == {0, SHORT}
    pauses = [len(run) for run in "".join("." if not n else "x" for n in copied(trees)).split("x") if run]
    assert pauses[:4] == [1, 2, 4, 4]  # ever longer, up to the knob, with one copy tried in between
    for tree in trees:
        note = dict(tree.note)
        assert ("paused" in note) == (note["match"] > 0 and len(tree) == 1)
    told = [dict(tree.note)["paused"] for tree in trees if "paused" in dict(tree.note)]
    assert ["; 0 more" in told[0], "; 1 more" in told[1], "; 0 more" in told[2]] == [True] * 3


def test_with_no_pause_copies_are_always_whole(tiny_target):
    assert set(copied(drive(tiny_target, [7, *TEXT], MISLEADING, pause=0, length=4))) == {4}


def test_copies_double_while_they_are_accepted_whole(tiny_target):
    text = list(range(100, 150))
    assert copied(drive(tiny_target, [*text, 100], text[1:40], length=10)) == [3, 6, 10, 10, 5]  # the last: what may still be emitted


def test_a_copy_that_breaks_off_makes_the_next_one_short(tiny_target):
    assert copied(drive(tiny_target, [7, *TEXT], [*TEXT[:12], 99, *TEXT[20:40]], length=8)) == [3, 6, 8, 3, 6, 7]


def test_where_nodes_cost_nothing_a_copy_is_whole_from_the_start():
    thrift = Thrift(8, 10)
    assert thrift.allowed(10) == 10
    thrift.learn(0, 10)
    assert thrift.allowed(10) == 10


def test_thrift_forgets_at_the_pace_of_its_memory():
    thrift = Thrift(8)
    for _ in range(18):
        assert thrift.allowed(10) == SHORT
        thrift.learn(0, SHORT)
    assert thrift.gain == pytest.approx(0.5 * 0.9**18)
    assert not thrift.left
    thrift.learn(0, SHORT)
    assert (thrift.gain < PAYS, thrift.left, thrift.allowed(10)) == (True, 1, 0)
    thrift.learn(3, SHORT)
    assert (thrift.left, thrift.allowed(10)) == (0, 6)
