"""Replay along recorded text counts exactly what real decoding counts: rounds, tokens, depths, confidence, cut rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specviz.analysis.acceptance import calibration
from specviz.analysis.summary import summarise
from specviz.build import build_drafter, build_rule, parse_spec
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter, per_row
from specviz.drafters.prompt_lookup import PromptLookup
from specviz.sampling import Sampling
from specviz.trace import Trace
from specviz.training.replay import Replayed, follow, replay
from specviz.tree import TokenTree

LIMIT = 40


class Oracle(Drafter):
    """Knows the text: drafts it twelve tokens deep with a wrong sibling at every depth, and errs at every 17th token."""

    def __init__(self, target, text):
        super().__init__(target)
        self.text = tuple(text)

    @per_row
    def draft(self, seen):
        while True:
            place = len(seen.tokens)
            tokens, parents, scores, node = [seen.next_token], [-1], [1.0], 0
            for depth, token in enumerate(self.text[place : place + min(12, seen.room)], place):
                wrong = (token + 1) % self.target.vocab_size
                tokens += [wrong, wrong + 1 if depth % 17 == 0 else token]
                parents += [node, node]
                scores += [0.3, 0.65]
                node = len(tokens) - 1
            seen = yield TokenTree(tuple(tokens), tuple(parents), tuple(scores))


def decoded(target, drafter, prompt, limit=LIMIT):
    trace = Trace()
    for _ in trace.record(decode(target, drafter, build_rule("rejection"), [Request(prompt)], sampling=Sampling(), max_new_tokens=limit)):
        pass
    return trace


def replayed(target, drafter, prompt, trace, limit=LIMIT):
    ids = (*prompt, *trace.emitted())
    taps = drafter.taps
    states = {tap: state[0] for tap, state in target.prefill(ids, target.new_cache(1, len(ids)), 0, taps).hidden.items()} if taps else {}
    return replay(drafter, ids, len(prompt), states, limit)


def assert_same(found: Replayed, trace: Trace):
    real = summarise(trace)
    assert (found.rounds, found.tokens) == (real.rounds, real.decoded_tokens)
    assert found.by_depth == real.by_depth
    assert found.tau == pytest.approx(real.tau or 0.0)
    bins = [(one.count, one.accepted) for one in found.calibration]
    assert bins == [(one.count, pytest.approx(one.accepted, abs=1e-4)) for one in calibration(trace)]


@pytest.mark.parametrize("spec", ["eagle@dynamic:nodes=24,depth=12,top_k=4", "eagle@chain:depth=12", "medusa@medusa_63", "medusa@dynamic:nodes=8"])
def test_replay_equals_decoding(spec, tiny_target, random_heads, text_ids):
    parsed = parse_spec(spec)
    drafter = build_drafter(tiny_target, replace(parsed, drafter_knobs={"checkpoint": str(random_heads(parsed.drafter))}))
    for seed in (1, 2):
        prompt = text_ids(12, seed=seed)
        trace = decoded(tiny_target, drafter, prompt)
        assert_same(replayed(tiny_target, drafter, prompt, trace), trace)


@pytest.mark.parametrize("limit", [40, 27, 14, 2, 1])
def test_deep_trees_are_cut_where_the_limit_cuts_them(limit, tiny_target, text_ids):
    prompt = text_ids(9, seed=3)
    text = (*prompt, *decoded(tiny_target, PromptLookup(tiny_target), prompt).emitted())
    oracle = Oracle(tiny_target, text)
    trace = decoded(tiny_target, oracle, prompt, limit)
    found = replayed(tiny_target, oracle, prompt, trace, limit)
    assert_same(found, trace)
    if limit == 40:
        assert len(found.by_depth.tested) == 12
        assert found.tau > 5


@pytest.mark.parametrize("place", [3, 14, 25])
def test_an_end_token_inside_the_path_cuts_the_round(place, tiny_target, text_ids, monkeypatch):
    prompt = text_ids(9, seed=3)
    text = (*prompt, *decoded(tiny_target, PromptLookup(tiny_target), prompt).emitted())
    end = text[9 + place]
    monkeypatch.setattr(tiny_target, "eos", frozenset({end}))
    oracle = Oracle(tiny_target, text)
    trace = decoded(tiny_target, oracle, prompt)
    assert trace.emitted()[-1] == end
    assert_same(replayed(tiny_target, oracle, prompt, trace), trace)


def test_a_drafter_that_is_always_right(tiny_target, text_ids):
    ids = text_ids(6, seed=2) * 8
    found = replay(PromptLookup(tiny_target, length=3), ids[:45], 20, {}, limit=100)
    assert (found.tau, found.rounds, found.acceptance) == (4.0, 6, (1.0, 1.0, 1.0))


def test_passengers_are_never_followed():
    tree = TokenTree((5, 6, 7), (-1, 0, 0), candidate=(True, False, True))
    assert follow(tree, (5, 6, 7), 0) == ()
    assert follow(tree, (5, 7), 0) == (2,)
