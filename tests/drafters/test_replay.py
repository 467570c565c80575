"""Drafting by replay gives the trees of drafting step by step, record and all; shown on a CPU over the same fixed tensors that CUDA captures."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from drafters.replayed import KNOBS, METHODS, PROMPTS, drafter_of, flow_of, run, same, static, texts
from looks import Looks
from torch.utils._python_dispatch import TorchDispatchMode

from specviz.build import build_drafter, parse_spec
from specviz.events import Drafted, Verified
from specviz.sampling import Sampling
from specviz.target import Target


@pytest.fixture(scope="module")
def exact(make_target, tiny_target) -> Target:
    """float64, so that rounding flips no decision; it goes by the fingerprint of the target that the random heads belong to."""
    made = make_target("llama", attention="tree", dtype=torch.float64)
    return Target(made.model, made.tokenizer, made.name, tiny_target.fingerprint)


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("method", METHODS)
def test_the_trees_are_those_of_drafting_step_by_step(exact, random_heads, method, knobs):
    target = static(exact)
    for prompt in PROMPTS:
        expected, trees, grown = run(exact, random_heads, method, knobs, [prompt])
        assert grown == len(trees) > 3
        found, replayed, grown = run(target, random_heads, method, knobs, [prompt])
        assert grown == 0
        assert texts(found) == texts(expected)
        assert len(trees) == len(replayed)
        for one, other in zip(replayed, trees, strict=True):
            same(one[0], other[0])


def test_the_comparison_sees_cut_candidates_and_unexpanded_nodes(exact, random_heads):
    """What the test above relies on: among its trees are some that cut candidates, leave nodes unexpanded, and end early for want of room."""
    _, trees, _ = run(exact, random_heads, "eagle", KNOBS[0], PROMPTS[:1])
    assert any(tree.pruned for (tree,) in trees)
    assert any(dict(tree.note)["drafted"] < 8 + 4 * 64 for (tree,) in trees[:-3])
    assert {max(tree.depths) for (tree,) in trees} >= {0, 1, 2} or min(max(tree.depths) for (tree,) in trees) < 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_candidate_lies_deeper_than_there_is_room(exact, random_heads, method, n):
    target = static(exact)
    expected, trees, _ = run(exact, random_heads, method, KNOBS[0], PROMPTS[:1], n=n)
    found, replayed, _ = run(target, random_heads, method, KNOBS[0], PROMPTS[:1], n=n)
    assert texts(found) == texts(expected)
    for one, other in zip(replayed, trees, strict=True):
        same(one[0], other[0])
    if n > 1:
        assert max(replayed[0][0].depths) == min(n - 2, 4)


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_batch_of_unequal_lengths_that_end_at_different_times(exact, random_heads, method):
    target, sampling = static(exact), Sampling(1.0, seed=4)
    expected, trees, _ = run(exact, random_heads, method, KNOBS[0], PROMPTS, sampling=sampling)
    found, replayed, grown = run(target, random_heads, method, KNOBS[0], PROMPTS, sampling=sampling)
    assert grown == 0
    assert texts(found) == texts(expected)
    for some, others in zip(replayed, trees, strict=True):
        for one, other in zip(some, others, strict=True):
            same(one, other)


@pytest.mark.parametrize("method", METHODS)
def test_at_temperature_one_too(exact, random_heads, method):
    target, sampling = static(exact), Sampling(1.0, seed=9)
    expected, trees, _ = run(exact, random_heads, method, KNOBS[0], PROMPTS[1:2], sampling=sampling, n=40)
    found, replayed, _ = run(target, random_heads, method, KNOBS[0], PROMPTS[1:2], sampling=sampling, n=40)
    assert texts(found) == texts(expected)
    for one, other in zip(replayed, trees, strict=True):
        same(one[0], other[0])


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
@pytest.mark.parametrize("length", [500, 1015])
def test_a_text_that_grows_out_of_its_view(exact, random_heads, text_ids, method, length):
    target = static(exact)
    expected, trees, _ = run(exact, random_heads, method, KNOBS[0], [text_ids(length)], n=24)
    found, replayed, grown = run(target, random_heads, method, KNOBS[0], [text_ids(length)], n=24)
    assert grown == 0
    assert texts(found) == texts(expected)
    for one, other in zip(replayed, trees, strict=True):
        same(one[0], other[0])


@pytest.mark.parametrize("method", METHODS)
def test_a_round_reads_the_device_twice_once_for_the_draft_and_once_for_the_rest(exact, random_heads, monkeypatch, method):
    target = static(exact)
    flow = flow_of(target, drafter_of(target, random_heads, method), PROMPTS[0], n=40)
    looks, counts = Looks(monkeypatch), []
    for event in flow:
        if isinstance(event, Verified):
            counts.append(looks.count)
    assert len(counts) > 3
    assert {b - a for a, b in pairwise(counts)} == {2}


class Refused(TorchDispatchMode):
    """Fails on what CUDA cannot record: reading a value on the host, sizes that depend on values, tensors made from lists or copied from the host."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "repeat_interleave.Tensor", "index.Tensor", "index_put", "_pin_memory")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert not any(name in str(function) for name in self.NAMES), f"{function} inside a captured draft"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", METHODS)
def test_a_captured_draft_asks_the_host_for_nothing(exact, random_heads, method):
    target = static(exact)
    drafter = drafter_of(target, random_heads, method)
    list(flow_of(target, drafter, PROMPTS[0], n=8))
    (lease,) = drafter.graphs._leases._idle
    (replay,) = lease.graphs.values()
    with torch.inference_mode(), Refused():
        replay._function(**replay.inputs)
        with pytest.raises(AssertionError, match="inside a captured draft"):
            replay.outputs[torch.tensor([0])]


@pytest.mark.parametrize("method", METHODS)
def test_a_draft_may_run_any_number_of_times(exact, random_heads, method):
    """A capture runs the draft three times over the inputs of the round."""
    target, lent = static(exact), []
    drafter = drafter_of(target, random_heads, method)
    replay_of = drafter.replay
    drafter.replay = lambda lease, *given: lent.append(lease) or replay_of(lease, *given)
    flow = flow_of(target, drafter, PROMPTS[0])
    for event in flow:
        if isinstance(event, Verified) and event.round == 2:
            break
    (replay,) = lent[0].graphs.values()
    once = replay.outputs.clone()
    assert torch.equal(replay.run(), once)
    flow.close()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_in_half_precision_it_runs(make_target, tiny_target, random_heads, method, dtype):
    """Candidates lie too close together there to ask for equal trees."""
    made = make_target("llama", attention="tree", dtype=dtype)
    target = static(Target(made.model, made.tokenizer, made.name, tiny_target.fingerprint))
    _, replayed, grown = run(target, random_heads, method, KNOBS[0], PROMPTS[:1], n=12)
    assert grown == 0
    assert len(replayed[0][0]) == 24


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_with_trained_heads(real_model, method):
    target = static(real_model)
    events = [
        list(flow_of(one, build_drafter(one, parse_spec(f"{method}@dynamic:precision=float32")), "Name three colours.", n=40)) for one in (real_model, target)
    ]
    assert texts(events[0]) == texts(events[1])
    drafted = [[event for event in one if isinstance(event, Drafted)] for one in events]
    assert len(drafted[0]) == len(drafted[1])
    for one, other in zip(*drafted, strict=True):
        assert (one.tokens, one.parents, one.tops.keys(), one.note) == (other.tokens, other.parents, other.tops.keys(), other.note)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", METHODS)
def test_cuda_graphs_draft_what_is_drafted_step_by_step(tiny_folder, random_heads, method):
    graphed, stepwise = Target.load(str(tiny_folder), "cuda"), Target.load(str(tiny_folder), "cuda")
    stepwise.graphs.drafting = False
    for prompt in PROMPTS:
        found, replayed, grown = run(graphed, random_heads, method, KNOBS[0], [prompt])
        assert grown == 0, graphed.notes
        expected, trees, _ = run(stepwise, random_heads, method, KNOBS[0], [prompt])
        assert texts(found) == texts(expected)
        for one, other in zip(replayed, trees, strict=True):
            assert len(one[0]) == len(other[0])
