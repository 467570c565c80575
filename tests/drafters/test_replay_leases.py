"""Leases and graphs of drafting by replay: whose they are, when they are made, and what happens when they cannot be."""

from __future__ import annotations

import threading

import pytest
import torch
from drafters.replayed import KNOBS, METHODS, PROMPTS, drafter_of, flow_of, run, same, static, texts

from specviz.build import build_drafter, build_rule, load_drafter, parse_spec, shaped
from specviz.decode import Request, decode
from specviz.errors import NotCaptured
from specviz.events import Finished, Verified
from specviz.graphs import draft as drafting
from specviz.sampling import Sampling
from specviz.target import Target


@pytest.fixture(scope="module")
def exact(make_target, tiny_target) -> Target:
    """float64, so that rounding flips no decision; it goes by the fingerprint of the target that the random heads belong to."""
    made = make_target("llama", attention="tree", dtype=torch.float64)
    return Target(made.model, made.tokenizer, made.name, tiny_target.fingerprint)


@pytest.mark.parametrize("method", METHODS)
def test_the_next_run_finds_lease_and_graphs_and_nothing_of_the_run_before(exact, random_heads, method):
    target = static(exact)
    drafter = drafter_of(target, random_heads, method)
    runs = [list(flow_of(target, drafter, prompt)) for prompt in (*PROMPTS, PROMPTS[0])]
    assert len(drafter.graphs._leases._idle) == 1
    assert [texts(events) for events in runs] == [texts(list(flow_of(exact, drafter_of(exact, random_heads, method), p))) for p in (*PROMPTS, PROMPTS[0])]
    (lease,) = drafter.graphs._leases._idle
    assert [(form.depth, view) for form, view in lease.graphs] == [(min(5, drafter.levels), 512 if drafter.remembers else 0)]


def test_capturing_is_no_drafting_time_and_done_before_the_first_round(exact, random_heads, text_ids, monkeypatch):
    target, order = static(exact), []
    real = drafting.capture
    monkeypatch.setattr(drafting, "capture", lambda *given, **more: order.append("capture") or real(*given, **more))
    drafter = drafter_of(target, random_heads)
    draft = drafter.draft
    drafter.draft = lambda seen: order.append("draft") or draft(seen)
    flows = [decode(target, drafter, build_rule("rejection"), [Request(text_ids(500))], sampling=Sampling(), max_new_tokens=30) for _ in range(2)]
    events = list(flows[0])
    assert order == ["capture", "capture", "draft"]  # of both views that the text comes to
    assert next(event for event in events if isinstance(event, Verified)).seconds["capture"] > 0
    assert not any(event.seconds.get("draft", 0) < 0 for event in events if isinstance(event, Verified))
    list(flows[1])
    assert order[3:] == ["draft"]


def test_runs_in_turn_never_share_a_lease(exact, random_heads):
    target = static(exact)
    drafter = drafter_of(target, random_heads)
    flows, ends = [flow_of(target, drafter, prompt) for prompt in PROMPTS[:2]], {}
    while len(ends) < 2:
        for number, flow in enumerate(flows):
            event = next(flow, None)
            if isinstance(event, Finished):
                ends[number] = event.tokens
    list(map(list, flows))
    assert [ends[0], ends[1]] == [texts(list(flow_of(exact, drafter_of(exact, random_heads), prompt)))[0] for prompt in PROMPTS[:2]]
    assert len(drafter.graphs._leases._idle) == 2


def test_two_threads_draft_at_once(exact, random_heads):
    target = static(exact)
    drafter, found = drafter_of(target, random_heads, "eagle3"), {}
    expected = [texts(list(flow_of(exact, drafter_of(exact, random_heads, "eagle3"), prompt))) for prompt in PROMPTS[:2]]
    threads = [threading.Thread(target=lambda n=n: found.update({n: texts(list(flow_of(target, drafter, PROMPTS[n])))})) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == expected


def test_a_closed_run_gives_its_lease_back(exact, random_heads):
    target = static(exact)
    drafter = drafter_of(target, random_heads)
    flow = flow_of(target, drafter, PROMPTS[0])
    for _ in range(6):
        next(flow)
    assert not drafter.graphs._leases._idle
    flow.close()
    assert len(drafter.graphs._leases._idle) == 1


def test_copies_of_a_drafter_with_other_shapes_share_leases(exact, random_heads):
    target = static(exact)
    specs = [parse_spec(f"eagle@dynamic:{knobs},checkpoint={random_heads('eagle')}") for knobs in KNOBS[:2]]
    made = load_drafter(target, specs[0])
    for spec, knobs in zip(specs, KNOBS[:2], strict=True):
        found = list(flow_of(target, shaped(made, spec), PROMPTS[0]))
        assert texts(found) == texts(list(flow_of(exact, drafter_of(exact, random_heads, knobs=knobs), PROMPTS[0])))
    (lease,) = made.graphs._leases._idle
    assert len(lease.graphs) == 2


# -- what is drafted step by step, and falling back by name


@pytest.mark.parametrize("spec", ["eagle@chain:depth=3", "eagle@eagle_25", "medusa@medusa_63", "eagle@chain:depth=3,children=sampled"])
def test_other_shapes_and_drawn_children_are_drafted_step_by_step(exact, random_heads, spec):
    target, sampling = static(exact), Sampling(1.0, seed=3)
    texts_of = []
    for one in (exact, target):
        method = spec.partition("@")[0]
        drafter = build_drafter(one, parse_spec(f"{spec}{',' if ':' in spec else ':'}checkpoint={random_heads(method)}"))
        assert drafter.describe()["draft_graphs"] == "off"
        events = decode(one, drafter, build_rule("rejection"), [Request(tuple(one.encode(PROMPTS[0])))], sampling=sampling, max_new_tokens=16)
        texts_of.append(texts(list(events)))
        assert not drafter.graphs._leases._idle
    assert texts_of[0] == texts_of[1]


def test_a_trace_says_how_drafts_were_made(exact, random_heads):
    found = [drafter_of(one, random_heads).describe()["draft_graphs"] for one in (exact, static(exact), static(exact, drafting=False))]
    assert found == ["off", "static", "off"]


def refuse(*given, **more):
    raise NotCaptured("it cannot be recorded as a CUDA graph (operation not permitted when stream is capturing)")


@pytest.mark.parametrize("method", METHODS)
def test_a_draft_that_cannot_be_captured_is_made_step_by_step_and_said_once(exact, random_heads, monkeypatch, method):
    target = static(exact)
    monkeypatch.setattr(drafting, "capture", refuse)
    with pytest.warns(UserWarning, match=r"CUDA graphs for drafting are off: .*not permitted") as told:
        found, replayed, grown = run(target, random_heads, method, KNOBS[0], PROMPTS)
    assert len([one for one in told if "drafting" in str(one.message)]) == 1
    assert grown == sum(map(len, replayed))
    assert target.graphs.mode == "static"  # verification goes on by replay
    assert any("for drafting are off" in note for note in target.notes)
    assert texts(found) == texts(run(exact, random_heads, method, KNOBS[0], PROMPTS)[0])


def test_a_capture_that_fails_in_the_middle_of_a_run_changes_no_tree(exact, random_heads, text_ids, monkeypatch):
    """The second view's graph is asked for only when the text gets there, as the capture ahead is left out."""
    target, real, made = static(exact), drafting.capture, []

    def second_fails(*given, **more):
        made.append(1)
        return real(*given, **more) if len(made) == 1 else refuse()

    monkeypatch.setattr(drafting, "capture", second_fails)
    monkeypatch.setattr(drafting.DraftGraphs, "ready", lambda *given: True)
    with pytest.warns(UserWarning, match="for drafting are off"):
        found, replayed, grown = run(target, random_heads, "eagle", KNOBS[0], [text_ids(505)], n=24)
    assert 0 < grown < len(replayed)
    expected, trees, _ = run(exact, random_heads, "eagle", KNOBS[0], [text_ids(505)], n=24)
    assert texts(found) == texts(expected)
    for one, other in zip(replayed, trees, strict=True):
        same(one[0], other[0])
