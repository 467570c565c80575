"""Static shapes, shown on a CPU: the code that CUDA captures runs here over the same fixed tensors, without a graph."""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest
import torch
from looks import Looks
from trees import random_path, random_tree

from specviz import drafters
from specviz.build import build_drafter, build_rule, parse_spec
from specviz.decode import Request, decode
from specviz.errors import CacheFull, NotCaptured
from specviz.events import Finished, Verified
from specviz.graphs import capture as capturing
from specviz.graphs import lease as leasing
from specviz.graphs import verify as verifying
from specviz.graphs.capture import capture
from specviz.graphs.lease import Lease, Leases, nodes_for, slots_for, view_for
from specviz.graphs.tree_mask import ancestors, layout
from specviz.registry import discover
from specviz.sampling import Sampling
from specviz.target import Target
from specviz.tree import TokenTree, ancestor_mask, chain

DRAFTERS = [*discover(drafters), "eagle@chain", "medusa@cartesian"]
PROMPTS = ["one two three one two three one two", "to be or not to be, that is", "a"]


def static(target: Target) -> Target:
    """The same model, verified over static shapes."""
    made = Target(target.model, target.tokenizer, target.name, target.fingerprint)
    made.use_graphs()
    assert made.graphs.mode == "static"
    return made


@pytest.fixture(scope="module")
def exact(make_target, tiny_target) -> Target:
    """float64, so that rounding flips no decision; it goes by the fingerprint of the target that the random heads belong to."""
    made = make_target("llama", attention="tree", dtype=torch.float64)
    return Target(made.model, made.tokenizer, made.name, tiny_target.fingerprint)


def run(target: Target, spec: str, heads, ids, n: int = 16, **options) -> list:
    name = spec.partition("@")[0]
    full = f"{spec}:checkpoint={heads(name)}" if discover(drafters)[name].learned else spec
    options = {"sampling": Sampling(), "max_new_tokens": n} | options
    requests = [Request(tuple(one)) for one in (ids if isinstance(ids[0], (list, tuple)) else [ids])]
    return list(decode(target, build_drafter(target, parse_spec(full)), build_rule("rejection"), requests, **options))


def texts(events: list) -> list[tuple[int, ...]]:
    return [event.tokens for event in events if isinstance(event, Finished)]


# -- mask and positions from parents


@pytest.mark.parametrize("size", [1, 2, 8, 31, 64, 256])
def test_ancestors_are_those_of_the_tree(size):
    tree = random_tree(Random(size), size, 1000, depth=300)
    deep = chain(0, range(1, size))
    for parents in (tree.parents, deep.parents):
        padded = torch.tensor([[*parents, *[-1] * 3]])
        assert ancestors(padded)[0].tolist() == ancestor_mask(parents, size + 3)


def test_the_layout_is_that_of_the_ordinary_path(exact):
    rng, lengths = Random(0), [7, 0, 12]
    trees = [random_tree(rng, size, 320) for size in (8, 3, 5)]
    parents = torch.tensor([[*tree.parents, *[-1] * (8 - len(tree))] for tree in trees])
    found = layout(parents, torch.tensor(lengths), 40, torch.float64, fold=2)
    assert torch.equal(found.mask[..., :20], exact._mask(trees, lengths, 8, 20))
    assert (found.mask[..., 20:] < -1e30).all()
    for row, (tree, length) in enumerate(zip(trees, lengths, strict=True)):
        assert found.positions[row, : len(tree)].tolist() == [length + depth for depth in tree.depths]
        assert found.slots[row].tolist() == list(range(length, length + 8))


# -- padding and envelopes


def rounds(target: Target, other: Target, lengths, sizes, seed: int, taps=(0, 3)) -> float:
    """Verifies and commits the same trees on both; returns the worst difference in logits and states at real nodes."""
    rng, worst = Random(seed), 0.0
    capacity = max(lengths) + 60 + max(sizes)
    caches = [target.new_cache(len(lengths), capacity), other.new_cache(len(lengths), capacity)]
    for row, length in enumerate(lengths):
        ids = [rng.randrange(320) for _ in range(length)]
        for one, cache in zip((target, other), caches, strict=True):
            one.prefill(ids, cache, row)
    for number, size in enumerate(sizes):
        rows = list(range(len(lengths)))[:: -1 if number % 2 else 1][: len(lengths) - number % 2]  # other orders, and rows left out
        rows = rows or [0]
        trees = [random_tree(rng, max(1, size - 3 * row), 320) for row in rows]
        a, b = target.forward(trees, caches[0], rows, taps), other.forward(trees, caches[1], rows, taps)
        assert a.logits.shape == b.logits.shape
        for place, (row, tree) in enumerate(zip(rows, trees, strict=True)):
            real = slice(0, len(tree))
            pairs = [(a.logits, b.logits), *((a.hidden[tap], b.hidden[tap]) for tap in taps)]
            worst = max(worst, *(float((x[place, real] - y[place, real]).abs().max()) for x, y in pairs))
            path = random_path(rng, tree)
            for cache in caches:
                cache.commit(row, (0, *path))
    assert caches[0].lengths == caches[1].lengths
    return worst


@pytest.mark.parametrize(("lengths", "sizes"), [((17,), (1, 8, 9, 33, 130, 1, 64)), ((3, 40, 9), (5, 12, 1, 20)), ((500,), (24, 2, 16))])
def test_padding_changes_no_real_node(exact, lengths, sizes):
    assert rounds(static(exact), exact, lengths, sizes, seed=len(sizes)) < 1e-9


@pytest.mark.parametrize(("kind", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("qwen3", "tree"), ("mistral", "tree")])
def test_other_models_and_attentions_in_float32(make_target, kind, attention):
    target = make_target(kind, attention=attention)
    assert rounds(static(target), target, (30,), (7, 30, 1), seed=1) < 1e-3


def test_the_smallest_envelope_that_fits_is_taken(exact, text_ids):
    assert [nodes_for(width) for width in (1, 2, 8, 9, 65, 256, 257)] == [1, 8, 8, 16, 128, 256, None]
    assert [view_for(needed, 2048) for needed in (1, 512, 513, 1024, 1025, 2048)] == [512, 512, 1024, 1024, 2048, 2048]
    assert view_for(1100, 1536) == 1536
    assert slots_for(1) == 512
    assert all(slots_for(capacity) >= capacity + 256 for capacity in range(1, 3000, 7))

    target = static(exact)
    cache = target.new_cache(1, 1000)
    target.prefill(text_ids(500), cache)
    for size in (1, 5, 8, 20, 1, 5):
        target.forward([random_tree(Random(size), size, 320)], cache)
    found = {(envelope.nodes, envelope.view) for envelope in cache.lease.graphs}
    assert found == {(1, 512), (8, 512), (32, 1024)}


def test_a_tree_beyond_the_largest_envelope_takes_the_ordinary_path(exact, text_ids):
    target = static(exact)
    cache = target.new_cache(1, 400)
    target.prefill(text_ids(5), cache)
    tree = random_tree(Random(0), 260, 320)
    assert target.graphs.ready([tree], cache, [0], ())
    assert target.forward([tree], cache).logits.shape[1] == 260
    assert not cache.lease.graphs


def test_graphs_are_few_and_the_oldest_makes_room(exact, text_ids, monkeypatch):
    monkeypatch.setattr(leasing, "MOST_GRAPHS", 3)
    target = static(exact)
    cache = target.new_cache(1, 400)
    target.prefill(text_ids(5), cache)
    for size in (1, 8, 16, 1, 32, 64):
        target.forward([random_tree(Random(size), size, 320)], cache)
        assert len(cache.lease.graphs) <= 3
    assert [envelope.nodes for envelope in cache.lease.graphs] == [1, 32, 64]


def test_nothing_is_allocated_for_the_inputs_of_a_round(exact, text_ids):
    """The graph reads the same tensors in every round, and its outputs stay where they are."""
    target, rng = static(exact), Random(2)
    cache = target.new_cache(1, 100)
    target.prefill(text_ids(9), cache)
    outputs, inputs = set(), set()
    for _ in range(4):
        tree = random_tree(rng, 8, 320)
        outputs.add(target.forward([tree], cache, taps=(3,)).logits.data_ptr())
        (replay,) = cache.lease.graphs.values()
        inputs.add(replay.inputs["packed"].data_ptr())
        assert not replay.captured
        cache.commit(0, (0, *random_path(rng, tree)))
    assert len(outputs) == len(inputs) == 1


def test_what_does_not_fit_is_refused_first(exact, text_ids):
    target = static(exact)
    cache = target.new_cache(1, 20)
    target.prefill(text_ids(10), cache)
    before = cache.buffer.clone()
    with pytest.raises(CacheFull, match=r"10 committed tokens \+ 11 new nodes do not fit a cache of 20"):
        target.forward([chain(1, range(10))], cache)
    assert torch.equal(cache.buffer, before)
    assert not cache.lease.graphs
    target.forward([chain(1, range(9))], cache)  # exactly full is fine, although the envelope is wider


# -- the text stays the same


@pytest.mark.parametrize("spec", DRAFTERS)
def test_tokens_are_those_of_the_ordinary_path(exact, random_heads, spec):
    target = static(exact)
    for prompt in PROMPTS:
        ids = exact.encode(prompt)
        for sampling in (Sampling(), Sampling(0.9, seed=3), Sampling(0.8, top_p=0.9, top_k=40, seed=1)):
            expected, found = (run(one, spec, random_heads, ids, sampling=sampling) for one in (exact, target))
            assert texts(found) == texts(expected)
            for a, b in zip([e for e in expected if isinstance(e, Verified)], [e for e in found if isinstance(e, Verified)], strict=True):
                assert (a.path, a.emitted, a.verdicts, a.target_rank, a.wanted, a.committed) == (
                    b.path,
                    b.emitted,
                    b.verdicts,
                    b.target_rank,
                    b.wanted,
                    b.committed,
                )
                for name in ("p", "p_warped", "entropy"):
                    assert list(getattr(b, name)) == [None if x is None else pytest.approx(x, rel=1e-5, abs=1e-8) for x in getattr(a, name)], name
                assert {node: [token for token, _ in top] for node, top in a.tops.items()} == {
                    node: [token for token, _ in top] for node, top in b.tops.items()
                }


@pytest.mark.parametrize("children", ["top", "sampled"])
def test_sampled_children_too(exact, random_heads, children):
    spec = f"eagle@chain:checkpoint={random_heads('eagle')},children={children}"
    ids, sampling = exact.encode(PROMPTS[0]), Sampling(1.0, seed=5)
    found = []
    for target in (exact, static(exact)):
        drafter = build_drafter(target, parse_spec(spec))
        found.append(texts(list(decode(target, drafter, build_rule("rejection"), [Request(tuple(ids))], sampling=sampling, max_new_tokens=20))))
    assert found[0] == found[1]


@pytest.mark.parametrize("rule", ["greedy", "typical"])
def test_other_rules_too(exact, rule):
    ids, sampling = exact.encode(PROMPTS[0]), Sampling(0.0 if rule == "greedy" else 0.8, seed=2)
    drafters = [build_drafter(target, parse_spec("prompt_lookup")) for target in (exact, static(exact))]
    found = [texts(list(decode(d.target, d, build_rule(rule), [Request(tuple(ids))], sampling=sampling, max_new_tokens=20))) for d in drafters]
    assert found[0] == found[1]


def test_rows_of_a_batch_that_end_at_different_times(exact, random_heads):
    prompts = [exact.encode(prompt) for prompt in PROMPTS]
    for spec in ("prompt_lookup", "eagle"):
        expected, found = (run(one, spec, random_heads, prompts, sampling=Sampling(0.9, seed=4), n=20) for one in (exact, static(exact)))
        assert texts(found) == texts(expected)


# -- leases


def test_runs_in_turn_share_neither_buffers_nor_graphs(exact, random_heads):
    target = static(exact)
    prompts = [exact.encode(prompt) for prompt in PROMPTS[:2]]
    alone = [texts(run(exact, "prompt_lookup", random_heads, ids, n=24))[0] for ids in prompts]
    drafters = [build_drafter(target, parse_spec("prompt_lookup")) for _ in prompts]
    flows = [
        decode(target, drafter, build_rule("rejection"), [Request(tuple(ids))], sampling=Sampling(), max_new_tokens=24)
        for drafter, ids in zip(drafters, prompts, strict=True)
    ]
    ends: dict[int, tuple[int, ...]] = {}
    while len(ends) < 2:
        for number, flow in enumerate(flows):
            event = next(flow, None)
            if isinstance(event, Finished):
                ends[number] = event.tokens
    assert [ends[0], ends[1]] == alone


def test_a_run_that_ends_leaves_its_graphs_to_the_next_one(exact, random_heads):
    target, ids = static(exact), exact.encode(PROMPTS[0])
    first, second = (run(target, "prompt_lookup", random_heads, ids) for _ in range(2))
    assert texts(first) == texts(second)
    assert any("capture" in event.seconds for event in first if isinstance(event, Verified))
    assert not any("capture" in event.seconds for event in second if isinstance(event, Verified))
    totals = next(event.seconds for event in first if isinstance(event, Finished))
    assert totals["capture"] > 0
    assert totals["total"] == pytest.approx(sum(totals[name] for name in ("prefill", "draft", "verify", "accept", "commit")))


def test_leases_are_lent_to_one_run_at_a_time_and_wiped():
    leases, device, like = Leases(), torch.device("cpu"), torch.zeros(1)
    small, large = Lease(2, 1, 512, device), Lease(2, 1, 1024, device)
    small.allocate((2, 2, 1, 1, 512, 4), like).fill_(float("nan"))
    for lease in (large, small):
        leases.give_back(lease)
    assert leases.take(2, 100) is None  # other rows
    assert leases.take(1, 300) is small  # the smallest that fits
    assert not small.allocate((2, 2, 1, 1, 512, 4), like).any()
    assert leases.take(1, 300) is large
    assert leases.take(1, 300) is None
    for _ in range(leasing.MOST_IDLE + 2):
        leases.give_back(Lease(2, 1, 512, device))
    assert len(leases._idle) == leasing.MOST_IDLE


def test_a_closed_or_failed_run_gives_its_lease_back(exact):
    target, ids = static(exact), exact.encode(PROMPTS[0])
    drafter = build_drafter(target, parse_spec("prompt_lookup"))
    flow = decode(target, drafter, build_rule("rejection"), [Request(tuple(ids))], sampling=Sampling(), max_new_tokens=20)
    for _ in range(6):
        next(flow)
    assert not target.graphs._leases._idle
    flow.close()
    assert len(target.graphs._leases._idle) == 1


def test_two_threads_decode_at_once(exact, random_heads):
    target = static(exact)
    prompts = [exact.encode(prompt) for prompt in PROMPTS[:2]]
    expected = [texts(run(exact, "eagle", random_heads, ids, n=12)) for ids in prompts]
    found: dict[int, list] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: texts(run(target, "eagle", random_heads, prompts[n], n=12))})) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == expected


# -- falling back by name


def refuse(*args, **kwargs):
    raise NotCaptured("it cannot be recorded as a CUDA graph (operation not permitted when stream is capturing)")


def test_a_model_that_cannot_be_captured_decodes_all_the_same(exact, random_heads, monkeypatch):
    monkeypatch.setattr(verifying, "capture", refuse)
    target = Target(exact.model, exact.tokenizer, exact.name, exact.fingerprint)
    with pytest.warns(UserWarning, match=r"CUDA graphs are off: .*not permitted when stream is capturing"):
        target.use_graphs()
    assert target.graphs.mode == "off"
    assert "CUDA graphs are off" in target.notes[-1]
    ids = exact.encode(PROMPTS[0])
    events = run(target, "eagle", random_heads, ids)
    assert texts(events) == texts(run(exact, "eagle", random_heads, ids))
    assert events[0].meta["device"]["graphs"] == "off"
    assert any("not permitted" in note for note in events[0].meta["target"]["notes"])


def test_a_capture_that_fails_in_the_middle_of_a_run_changes_no_token(exact, random_heads, monkeypatch):
    target, ids = static(exact), exact.encode(PROMPTS[0])
    real, made = verifying.capture, []

    def second_fails(*args, **kwargs):
        made.append(1)
        return real(*args, **kwargs) if len(made) == 1 else refuse()

    monkeypatch.setattr(verifying, "capture", second_fails)
    with pytest.warns(UserWarning, match="CUDA graphs are off"):
        events = run(target, "prompt_lookup", random_heads, ids, n=30)
    assert len(made) == 2
    assert texts(events) == texts(run(exact, "prompt_lookup", random_heads, ids, n=30))


def test_graphs_that_give_other_logits_are_not_used(exact, monkeypatch):
    target = Target(exact.model, exact.tokenizer, exact.name, exact.fingerprint)
    monkeypatch.setattr(verifying, "layout", lambda *given: replace(layout(*given), positions=given[1][:, None].expand_as(given[0])))
    with pytest.warns(UserWarning, match=r"CUDA graphs are off: .*differ from a plain forward"):
        target.use_graphs()
    assert target.graphs.mode == "off"


def test_load_decides_by_device_unless_told(tiny_folder, exact):
    assert Target.load(str(tiny_folder)).graphs.mode == ("cuda" if torch.cuda.is_available() else "off")
    assert Target.load(str(tiny_folder), "cpu", graphs=True).graphs.mode == "static"
    assert Target.load(str(tiny_folder), graphs=False).graphs.mode == "off"


def test_the_mode_is_in_the_trace(exact, random_heads):
    ids = exact.encode("a")
    assert [run(one, "autoregressive", random_heads, ids, n=2)[0].meta["device"]["graphs"] for one in (exact, static(exact))] == ["off", "static"]


# -- one transfer a round


@pytest.mark.parametrize("detail", [True, False])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, seed=1), Sampling(0.9, top_k=20, seed=1)])
def test_a_round_reads_the_device_once(exact, monkeypatch, sampling, detail):
    """Verify, rule, commit and record; prompt_lookup drafts on the host, so all that is read is read by these."""
    target = static(exact)
    drafter, ids = build_drafter(target, parse_spec("prompt_lookup")), exact.encode("one two one two one two one two")
    flow = decode(target, drafter, build_rule("rejection"), [Request(tuple(ids))], sampling=sampling, max_new_tokens=24, detail=detail)
    looks, counts = Looks(monkeypatch), []
    for event in flow:
        if isinstance(event, Verified):
            counts.append(looks.count)
    assert len(counts) > 3
    assert {b - a for a, b in pairwise(counts)} == {1}


# -- the wrapper for a drafter's step


def test_a_replay_keeps_inputs_and_outputs_in_place():
    calls = []

    def function(x, y):
        calls.append(1)
        return {"sum": x + y, "parts": (x * 2, None)}

    replay = capture(function, {"x": torch.zeros(3), "y": torch.ones(3)})
    places = [replay.outputs["sum"].data_ptr(), replay.inputs["x"].data_ptr()]
    found = replay(x=torch.tensor([1.0, 2.0, 3.0]))
    assert found["sum"].tolist() == [2.0, 3.0, 4.0]
    assert found["parts"][0].tolist() == [2.0, 4.0, 6.0]
    replay.fill(y=torch.zeros(3))
    assert replay.run()["sum"].tolist() == [1.0, 2.0, 3.0]
    assert [replay.outputs["sum"].data_ptr(), replay.inputs["x"].data_ptr()] == places
    assert len(calls) == 3


@pytest.mark.parametrize(("values", "message"), [({"z": torch.zeros(3)}, "expected one of x"), ({"x": torch.zeros(4)}, r"expected shape \(3,\)")])
def test_what_does_not_fit_a_replay_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        capture(lambda x: x + 1, {"x": torch.zeros(3)})(**values)


def test_a_function_whose_shapes_depend_on_contents_is_found():
    replay = capture(lambda x: x[x > 0], {"x": torch.ones(3)})
    with pytest.raises(ValueError, match="shapes must not depend on contents"):
        replay(x=torch.tensor([1.0, -1.0, 1.0]))


class Cuda:
    """Stands in for torch.cuda and notes what is asked of it, in order; its graph's replay is the function's second run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(torch.cuda, "Stream", lambda *args: self.stream("side"))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda *args: self.stream("current"))
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: self.inside(f"on {stream.name}"))
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: self.done.append(f"back on {stream.name}"))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "own pool")
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda device, pool: self.done.append(f"end {pool} on {device}"), raising=False)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: self.done.append("replay")))
        monkeypatch.setattr(torch.cuda, "graph", lambda graph, **given: self.inside(f"record {given['stream'].name} {given['capture_error_mode']}"))

    def stream(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, device_index=0, wait_stream=lambda other: self.done.append(f"{name} waits for {other.name}"))

    @contextmanager
    def inside(self, what: str):
        self.done.append(what)
        yield


def on_cuda() -> SimpleNamespace:
    return SimpleNamespace(device=torch.device("cuda:0"))


def test_a_recording_is_warmed_up_on_its_own_stream(monkeypatch):
    cuda = Cuda(monkeypatch)
    replay = capture(lambda x: cuda.done.append("run") or "output", {"x": on_cuda()}, pool="pool")
    warm = ["side waits for current", "on side", *["run"] * capturing.WARM_UPS, "current waits for side"]
    assert cuda.done == [*warm, "record side thread_local", "run", "replay"]
    assert replay.captured
    assert replay.run() == "output"
    assert cuda.done[-1] == "replay"


def test_torch_offers_what_a_recording_asks_for():
    assert {"pool", "stream", "capture_error_mode"} <= set(inspect.signature(torch.cuda.graph.__init__).parameters)
    assert all(hasattr(torch.cuda.CUDAGraph, name) for name in ("replay", "capture_begin"))
    assert callable(torch.cuda.graph_pool_handle)
    assert callable(torch.cuda.set_stream)


def test_a_failed_recording_says_why(monkeypatch):
    def fail(x):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore lines")

    Cuda(monkeypatch)
    with pytest.raises(NotCaptured, match=r"\(CUDA error: operation not permitted when stream is capturing\)$"):
        capture(fail, {"x": on_cuda()})


@pytest.mark.parametrize(("pool", "ended"), [(None, "own pool"), ("shared", "shared")])
def test_after_a_failed_recording_the_thread_is_back_on_its_own_stream(monkeypatch, pool, ended):
    """Leaving torch.cuda.graph raises before it gives the stream back, when what was recorded is not allowed."""
    cuda, ran = Cuda(monkeypatch), []

    def fail(x):
        ran.append(1)
        if len(ran) > capturing.WARM_UPS:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    with pytest.raises(NotCaptured, match="not permitted"):
        capture(fail, {"x": on_cuda()}, pool=pool)
    assert cuda.done[-3:] == ["record side thread_local", "back on current", f"end {ended} on 0"]


def test_an_allocator_that_has_ended_already_does_not_hide_why_a_recording_failed(monkeypatch):
    def ended(device, pool):
        raise RuntimeError("not currently recording")

    cuda, ran = Cuda(monkeypatch), []
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", ended, raising=False)
    with pytest.raises(NotCaptured, match="no rows"):
        capture(lambda x: ran.append(1) or (len(ran) > capturing.WARM_UPS and refused("no rows")), {"x": on_cuda()})
    assert cuda.done[-1] == "back on current"


def refused(reason: str) -> None:
    raise RuntimeError(reason)


def test_a_draft_step_over_static_inputs():
    """What a drafter does with the wrapper: a layer over preallocated keys and values, one step after the other, slots and mask as contents."""
    rows, room, width = 4, 32, 16
    generator = torch.Generator().manual_seed(0)
    w_q, w_k, w_v = (torch.randn(width, width, dtype=torch.float64, generator=generator) for _ in range(3))
    keys, values = torch.zeros(room, width, dtype=torch.float64), torch.zeros(room, width, dtype=torch.float64)

    def step(x, slots, bias):
        keys.index_copy_(0, slots, x @ w_k)
        values.index_copy_(0, slots, x @ w_v)
        return x + (x @ w_q @ keys.T + bias).softmax(-1) @ values

    blank = {"x": torch.zeros(rows, width), "bias": torch.zeros(rows, room)}
    replay = capture(step, {"slots": torch.arange(rows), **{name: tensor.double() for name, tensor in blank.items()}})
    x = torch.randn(12, width, dtype=torch.float64, generator=generator)
    causal = torch.zeros(12, 12, dtype=torch.float64).masked_fill_(torch.ones(12, 12).triu(1).bool(), float("-inf"))
    expected = x + (x @ w_q @ (x @ w_k).T + causal).softmax(-1) @ (x @ w_v)
    for first in range(0, 12, rows):
        slots = torch.arange(first, first + rows)
        bias = torch.full((rows, room), float("-inf"), dtype=torch.float64).masked_fill_(torch.arange(room) <= slots[:, None], 0.0)
        assert float((replay(x=x[slots], slots=slots, bias=bias) - expected[slots]).abs().max()) < 1e-9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_refused_capture_leaves_the_next_one_possible_and_the_thread_on_its_stream():
    before, x = torch.cuda.current_stream(), torch.ones(3, device="cuda")
    with pytest.raises(NotCaptured):
        capture(lambda x: x * x.sum().item(), {"x": x})
    assert torch.cuda.current_stream() == before
    replay = capture(lambda x: x * 2, {"x": x})
    assert replay.captured
    assert replay(x=torch.full((3,), 5.0, device="cuda")).tolist() == [10.0] * 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_graphs_give_the_logits_of_the_ordinary_path(tiny_folder):
    plain, graphed = Target.load(str(tiny_folder), "cuda", graphs=False), Target.load(str(tiny_folder), "cuda")
    assert graphed.graphs.mode == "cuda", graphed.notes
    assert rounds(graphed, plain, (17,), (1, 8, 33, 64, 1), seed=1) < 1e-3
    assert rounds(graphed, plain, (3, 40, 9), (5, 12, 1), seed=2) < 1e-3


def test_a_tree_is_packed_row_by_row(exact):
    target = static(exact)
    cache = target.new_cache(3, 40)
    cache.lengths = [5, 0, 7]
    packed = target.graphs._pack([TokenTree((9, 8), (-1, 0))], cache, [2], 8)
    assert packed[2].tolist() == [9, 8, 0, 0, 0, 0, 0, 0, -1, 0, -1, -1, -1, -1, -1, -1, 7]
    assert packed[0].tolist() == [0] * 8 + [-1] * 8 + [5]
