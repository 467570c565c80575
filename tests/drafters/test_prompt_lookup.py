from __future__ import annotations

from random import Random

import pytest

from specviz.drafters.base import Feedback
from specviz.drafters.prompt_lookup import PromptLookup
from specviz.sampling import Sampling, Uniform


def feedback(tokens, room: int = 50) -> Feedback:
    return Feedback(0, tuple(tokens), (), {}, None, Sampling(), Uniform(0), room)


def first(target, tokens, room: int = 50, **knobs):
    return next(PromptLookup(target, **knobs).draft([feedback(tokens, room)]))[0]


def test_it_copies_what_followed_the_longest_match(tiny_target):
    tree = first(tiny_target, [1, 2, 3, 4, 5, 9, 3, 7, 2, 3], ngram=2, length=3)
    assert tree.tokens == (3, 4, 5, 9)  # "2 3" beats the later "3"
    assert tree.parents == (-1, 0, 1, 2)
    assert dict(tree.note) == {"match": 2, "origin": 3}


def test_of_equal_matches_the_latest_counts(tiny_target):
    assert first(tiny_target, [3, 4, 3, 5, 3], length=1).tokens == (3, 5)


def test_without_a_match_the_root_stands_alone(tiny_target):
    tree = first(tiny_target, [1, 2, 3])
    assert (tree.tokens, dict(tree.note)) == ((3,), {"match": 0, "origin": None})
    assert first(tiny_target, [7]).tokens == (7,)


def test_a_repeated_token_is_found_beside_itself(tiny_target):
    tree = first(tiny_target, [5, 5, 5, 5], ngram=3, length=8)
    assert dict(tree.note) == {"match": 3, "origin": 3}
    assert tree.tokens == (5, 5)  # only what is written can be copied


@pytest.mark.parametrize(("room", "copied"), [(0, 0), (2, 2), (50, 4)])
def test_it_copies_no_more_than_fits(tiny_target, room, copied):
    assert len(first(tiny_target, [1, 2, 3, 4, 5, 1], room, length=4)) == 1 + copied


def test_the_index_grows_with_the_text_as_if_it_were_made_anew(tiny_target):
    rng, drafter = Random(0), PromptLookup(tiny_target, ngram=3, length=5)
    text = [rng.randrange(4) for _ in range(10)]
    flow = drafter.draft([feedback(text)])
    grown = next(flow)[0]
    for _ in range(40):
        assert grown == first(tiny_target, text, ngram=3, length=5)
        text += [rng.randrange(4) for _ in range(rng.randrange(1, 5))]
        grown = flow.send([feedback(text)])[0]
