"""What tests of drafting by replay share: the same model on both paths, runs that note their trees, and the comparison of two trees."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields

import pytest

from specviz.build import build_drafter, build_rule, parse_spec
from specviz.decode import Request, decode
from specviz.events import Finished
from specviz.sampling import Sampling
from specviz.target import Target

METHODS = ["eagle", "eagle3", "hydra", "medusa"]
PROMPTS = ["one two three one two three one two", "to be or not to be, that is", "a"]
KNOBS = ["nodes=24,depth=5,top_k=8", "nodes=4,depth=3,top_k=4", "nodes=60,depth=6,top_k=10", "nodes=8,depth=1,top_k=1", "nodes=9,depth=7,top_k=2,show_pruned=0"]


def static(target: Target, drafting: bool = True) -> Target:
    """The same model over static shapes; `drafting` False: only its verification."""
    made = Target(target.model, target.tokenizer, target.name, target.fingerprint)
    made.use_graphs()
    made.graphs.drafting = drafting
    assert made.graphs.mode == "static"
    return made


@contextmanager
def noting(drafter):
    """Notes every tree that the drafter gives, row by row, and how many of them were grown step by step."""
    trees, grown, draft, grow = [], [], drafter.draft, drafter.grow

    def noted(seen):
        flow = draft(seen)
        found = next(flow)
        while True:
            trees.append(found)
            found = flow.send((yield found))

    drafter.draft, drafter.grow = noted, lambda *given: grown.append(1) or grow(*given)
    yield trees, grown
    del drafter.draft, drafter.grow


def run(target, heads, method, knobs, prompts, *, n=24, sampling=None, **options):
    """Returns (events, trees, how many were grown step by step)."""
    drafter = build_drafter(target, parse_spec(f"{method}@dynamic:{knobs},checkpoint={heads(method)}"))
    ids = [target.encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
    with noting(drafter) as (trees, grown):
        events = list(
            decode(
                target,
                drafter,
                build_rule("rejection"),
                [Request(tuple(one)) for one in ids],
                sampling=sampling or Sampling(),
                max_new_tokens=n,
                **options,
            )
        )
    return events, trees, len(grown)


def texts(events):
    return [event.tokens for event in events if isinstance(event, Finished)]


def same(tree, other) -> None:
    """Field by field; confidences up to the rounding of a float32 log-softmax."""
    for field in fields(tree):
        mine, theirs = getattr(tree, field.name), getattr(other, field.name)
        if field.name == "scores":
            assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-9)
        elif field.name == "pruned":
            assert [(p.token, p.parent) for p in mine] == [(p.token, p.parent) for p in theirs]
            assert [p.score for p in mine] == pytest.approx([p.score for p in theirs], rel=1e-5, abs=1e-12)
        elif field.name == "tops":
            assert [(t.node, t.tokens) for t in mine] == [(t.node, t.tokens) for t in theirs]
            for one, two in zip(mine, theirs, strict=True):
                assert one.q == pytest.approx(two.q, rel=1e-5, abs=1e-12)
        else:
            assert mine == theirs, field.name


def drafter_of(target, heads, method="eagle", knobs=KNOBS[0]):
    return build_drafter(target, parse_spec(f"{method}@dynamic:{knobs},checkpoint={heads(method)}"))


def flow_of(target, drafter, prompt, n=24, **options):
    ids = tuple(target.encode(prompt))
    return decode(target, drafter, build_rule("rejection"), [Request(ids)], sampling=Sampling(), max_new_tokens=n, **options)
