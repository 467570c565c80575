"""The loop: exact at temperature 0 and above it, exact about ends and limits, honest about failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from random import Random

import pytest
import torch
from trees import random_tree

from specviz.build import build_drafter, build_rule, parse_spec
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter, per_row
from specviz.errors import BadInput
from specviz.events import Drafted, Event, Finished, Prefilled, Started, Verified
from specviz.registry import Bound
from specviz.sampling import Sampling, warp
from specviz.shapes.base import Growth, Sampler
from specviz.shapes.cartesian import cartesian
from specviz.shapes.chain import chain as chain_shape
from specviz.target import Target
from specviz.tree import TokenTree, chain

GREEDY, REJECTION = build_rule("greedy"), build_rule("rejection")
REPEATS = "one two three four five one two three four five one two three"


class Made(Drafter):
    """Drafts what a function makes of the feedback."""

    def __init__(self, target: Target, make: Callable, taps: tuple[int, ...] = ()) -> None:
        super().__init__(target)
        self.make, self.taps = make, taps
        self.seen: list = []
        self.closed = 0

    @per_row
    def draft(self, seen):
        try:
            while True:
                self.seen.append(seen)
                seen = yield self.make(seen)
        finally:
            self.closed += 1


def bushy(seed: int = 0, size: int = 20) -> Callable:
    """Random trees, different every round, that mostly miss."""
    rng = Random(seed)

    def make(seen) -> TokenTree:
        tree = random_tree(rng, size, 320)
        return TokenTree((seen.next_token, *tree.tokens[1:]), tree.parents)

    return make


def oracle(texts: Iterable[tuple[int, ...]], length: int = 4, wrong: int = 0) -> Callable:
    """Drafts the true continuation of one of `texts`, with decoys before it; every `wrong`-th token is spoilt."""
    known = [list(text) for text in texts]

    def make(seen) -> TokenTree:
        so_far = list(seen.tokens)
        text = next((t for t in known if t[: len(so_far)] == so_far), so_far)
        ahead = text[len(so_far) : len(so_far) + length]
        if wrong:
            ahead = [(token + 1) % 320 if (len(so_far) + i) % wrong == 0 else token for i, token in enumerate(ahead)]
        good = chain(seen.next_token, ahead)
        if not ahead:
            return good
        decoys = ((ahead[0] + 5) % 320, (ahead[0] + 9) % 320)  # node 1 and 2, so the true path has gaps
        parents = (-1, 0, 0, 0, *range(3, 2 + len(ahead)))
        return TokenTree((seen.next_token, *decoys, *ahead), parents)

    return make


def run(target: Target, drafter: Drafter, ids, rule: Bound = REJECTION, n: int = 24, **options) -> list[Event]:
    requests = [Request(tuple(i)) for i in ids] if isinstance(ids[0], (list, tuple)) else [Request(tuple(ids))]
    sampling = options.pop("sampling", Sampling())
    return list(decode(target, drafter, rule, requests, sampling=sampling, max_new_tokens=n, **options))


def tokens(events: list[Event], row: int = 0) -> tuple[int, ...]:
    return next(e for e in events if isinstance(e, Finished) and e.row == row).tokens


def plain(target: Target, ids, n: int = 24, **options) -> tuple[int, ...]:
    return tokens(run(target, build_drafter(target, parse_spec("autoregressive")), ids, n=n, **options))


@torch.inference_mode()
def generated(model, ids, n: int, eos) -> tuple[int, ...]:
    out = model.generate(torch.tensor([list(ids)]), max_new_tokens=n, do_sample=False, pad_token_id=0, eos_token_id=sorted(eos) or None)
    return tuple(out[0, len(ids) :].tolist())


# -- temperature 0


@pytest.mark.parametrize("seed", range(4))
def test_plain_decoding_is_transformers_generate(tiny_target, text_ids, seed):
    ids = text_ids(8 + 5 * seed, seed)
    assert plain(tiny_target, ids, 40) == generated(tiny_target.model, ids, 40, tiny_target.eos)


@pytest.mark.parametrize("rule", [GREEDY, REJECTION, build_rule("typical")], ids=lambda rule: rule.name)
@pytest.mark.parametrize("kind", ["bushy", "oracle", "half", "lookup"])
def test_every_draft_gives_the_same_text(tiny_target, rule, kind):
    ids = tiny_target.encode(REPEATS)
    expected = plain(tiny_target, ids, 30)
    text = (*ids, *expected)
    makes = {"bushy": bushy(), "oracle": oracle([text]), "half": oracle([text], wrong=3), "lookup": None}
    drafter = Made(tiny_target, makes[kind]) if makes[kind] else build_drafter(tiny_target, parse_spec("prompt_lookup"))
    events = run(tiny_target, drafter, ids, rule, 30)
    assert tokens(events) == expected
    if kind == "oracle":
        assert sum(isinstance(e, Verified) for e in events) == 6  # 29 tokens after prefill, up to 5 a round


def test_other_models_and_attentions_give_transformers_text(make_target, text_ids):
    for kind, options in (("qwen3", {}), ("mistral", {}), ("llama", {"attention": "eager"}), ("llama", {"attention": "tree"})):
        target, ids = make_target(kind, **options), text_ids(12, 3)
        expected = generated(target.model, ids, 20, target.eos)
        assert tokens(run(target, Made(target, oracle([(*ids, *expected)], wrong=4)), ids, n=20)) == expected


@pytest.mark.parametrize("seed", range(3))
def test_bfloat16_differs_at_near_ties_only(make_target, text_ids, seed):
    """A tree's rows are computed in another order than a single token's, so in bfloat16 two logits that nearly tie may change places."""
    target, ids = make_target("llama", dtype=torch.bfloat16), text_ids(12, seed)
    expected = plain(target, ids, 24)
    found = tokens(run(target, Made(target, oracle([(*ids, *expected)], wrong=4)), ids, n=24))
    place = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    if place is None:
        assert found == expected
        return
    logits = target.prefill([*ids, *expected[:place]], target.new_cache(1, 64)).logits[0, -1].float()
    gap = abs(float(logits[expected[place]] - logits[found[place]]))
    assert gap <= 4 * torch.finfo(torch.bfloat16).eps * float(logits.abs().max())


@pytest.fixture(scope="module")
def stock_model(real_model):
    from transformers import AutoModelForCausalLM

    from specviz.sources import locate

    return AutoModelForCausalLM.from_pretrained(locate(real_model.name), dtype=torch.float32).eval()


def compare_with_generate(real_model, stock_model, prompt: str, drafters: list[str], rules: list[Bound]) -> None:
    ids = real_model.encode(prompt)
    expected = generated(stock_model, ids, 128, real_model.eos)
    for spec in drafters:
        drafter = build_drafter(real_model, parse_spec(spec))
        for rule in rules:
            assert tokens(run(real_model, drafter, ids, rule, 128, detail=False)) == expected, (prompt, spec, rule.name)


@pytest.mark.real
@pytest.mark.parametrize(("place", "rule"), [(0, GREEDY), (4, REJECTION), (6, REJECTION)])
def test_the_real_model_gives_transformers_own_text(real_model, stock_model, prompts, place, rule):
    compare_with_generate(real_model, stock_model, prompts[place], ["prompt_lookup"], [rule])


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(7200)
def test_the_real_model_gives_transformers_own_text_on_every_prompt(real_model, stock_model, prompts):
    from specviz.errors import Missing

    fitting = ["autoregressive", "prompt_lookup"]
    for name in ("medusa", "eagle"):
        try:
            build_drafter(real_model, parse_spec(name))
            fitting.append(name)
        except (BadInput, Missing):
            continue  # not built, or not trained here
    assert len(prompts) == 40
    for prompt in prompts:
        compare_with_generate(real_model, stock_model, prompt, fitting, [GREEDY, REJECTION])


# -- above temperature 0, deterministic children


@pytest.mark.parametrize(
    "sampling", [Sampling(1.0, seed=1), Sampling(0.7, top_p=0.9, seed=2), Sampling(1.5, top_k=50, seed=3), Sampling(1.0, top_p=0.5, top_k=30, seed=2**62)]
)
def test_deterministic_children_give_token_for_token_plain_sampling(tiny_target, text_ids, sampling):
    ids = text_ids(10, 1)
    expected = plain(tiny_target, ids, 40, sampling=sampling)
    for make in (bushy(), oracle([(*ids, *expected, *expected)], wrong=5)):
        assert tokens(run(tiny_target, Made(tiny_target, make), ids, n=40, sampling=sampling)) == expected
    lookup = build_drafter(tiny_target, parse_spec("prompt_lookup:ngram=1"))
    assert tokens(run(tiny_target, lookup, ids, n=40, sampling=sampling)) == expected


def test_seeds_reproduce_and_differ(tiny_target, text_ids):
    texts = [plain(tiny_target, text_ids(10), sampling=Sampling(1.0, seed=seed)) for seed in (0, 0, 1, 2)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_plain_sampling_draws_from_the_warped_distribution(tiny_target, text_ids):
    ids, sampling = text_ids(10), Sampling(0.9, top_p=0.8)
    p = warp(tiny_target.prefill(ids, tiny_target.new_cache(1, 10)).logits[0], sampling)[0]
    counts = torch.zeros(320)
    for seed in range(150):
        counts[plain(tiny_target, ids, 1, sampling=Sampling(0.9, top_p=0.8, seed=seed))[0]] += 1
    assert float((counts / 150 - p).abs().sum()) / 2 < 0.2
    assert not counts[p == 0].any()


# -- above temperature 0, sampled children: the distribution of whole texts over many seeds

SMALL = {
    "vocab_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "head_dim": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.35,
}
SEEDS = 200
PROMPTS = [(1, 2, 0, 3, 3, 1, 0, 2, 2, 1)[:length] for length in range(2, 10)]  # other lengths are other keys, so the rows of a batch are independent
q_rows = torch.randn(4, 4, generator=torch.Generator().manual_seed(8)).mul(1.5).log_softmax(-1)


def drawing(shape: Callable) -> Callable:
    """Children drawn from a bigram draft that knows nothing of the target."""

    def make(seen) -> TokenTree:
        sampler = Sampler(seen.sampling, seen.uniform, seen.position, 4)
        return shape(Growth(seen.next_token, lambda g, nodes: q_rows[[g.tokens[n] for n in nodes]], depth_limit=seen.room, sampler=sampler))

    return make


@pytest.fixture(scope="module")
def small(make_target) -> Target:
    return make_target("llama", eos_token_id=None, bos_token_id=None, pad_token_id=None, **SMALL)


@pytest.fixture(scope="module")
def text_probabilities(small) -> list[torch.Tensor]:
    """p of every text of three tokens after each prompt, [4, 4, 4], from cacheless forwards."""

    def after(prompt: tuple[int, ...]) -> torch.Tensor:
        texts = torch.tensor([[*prompt, *text] for text in product(range(4), repeat=2)])
        with torch.inference_mode():
            p = small.model(input_ids=texts, use_cache=False).logits[:, len(prompt) - 1 :].double().softmax(-1).reshape(4, 4, 3, 4)
        first, second, third = p[0, 0, 0], p[:, 0, 1], p[:, :, 2]
        return first[:, None, None] * second[:, :, None] * third

    return [after(prompt) for prompt in PROMPTS]


def chi_square(small: Target, texts: list[torch.Tensor], shape: Callable, rule: Bound) -> float:
    """Returns (chi-square - degrees of freedom) / its standard deviation over the texts of many seeds; about normal for a lossless rule."""
    counts, drafter = [torch.zeros_like(p) for p in texts], Made(small, drawing(shape))
    for seed in range(SEEDS):
        events = run(small, drafter, PROMPTS, rule, 3, sampling=Sampling(1.0, seed=seed), detail=False)
        for row, count in enumerate(counts):
            count[tokens(events, row)] += 1
    total, freedom = 0.0, 0
    for p, count in zip(texts, counts, strict=True):
        expected, found = p.flatten() * SEEDS, count.flatten()
        rare = expected < 5
        cells, counted = (torch.cat([v[~rare], v[rare].sum()[None]]) for v in (expected, found))
        total += float(((counted - cells) ** 2 / cells).sum())
        freedom += len(cells) - 1
    return (total - freedom) / (2 * freedom) ** 0.5


def keep_the_whole_q(tree, evidence):
    """Bug: q is not renormalised after a draw without replacement."""
    return REJECTION.thing(replace(tree, draws=tuple(replace(group, replace=True) for group in tree.draws)), evidence)


def stale_bonus(tree, evidence):
    """Bug: the bonus token is drawn from the root's row."""
    verdict = REJECTION.thing(tree, evidence)
    end = verdict.path[-1] if verdict.path else 0
    return replace(verdict, next_token=evidence.uniform.draw(evidence.warped(0), evidence.position_below(end), "token"))


def pair(growth):
    return cartesian(growth, widths="3-1")


def line(growth):
    return chain_shape(growth, depth=2)


@pytest.mark.parametrize("shape", [pair, line])
def test_drawn_children_leave_the_distribution_of_texts_unchanged(small, text_probabilities, shape):
    assert [float(p.sum()) for p in text_probabilities] == pytest.approx([1.0] * len(PROMPTS))
    assert abs(chi_square(small, text_probabilities, shape, REJECTION)) < 4.0


@pytest.mark.parametrize(("rule", "shape"), [(keep_the_whole_q, pair), (stale_bonus, line)])
def test_planted_bugs_change_it(small, text_probabilities, rule, shape):
    assert chi_square(small, text_probabilities, shape, Bound(rule.__name__, rule)) > 8.0


# -- ends and limits


@pytest.mark.parametrize("n", range(1, 13))
def test_the_number_of_tokens_is_exact(tiny_target, text_ids, n):
    ids = text_ids(10)
    text = (*ids, *plain(tiny_target, ids, 40))
    events = run(tiny_target, Made(tiny_target, oracle([text], length=6)), ids, n=n)
    finished = events[-1]
    assert finished.tokens == text[10 : 10 + n]
    assert (finished.reason, len(finished.tokens)) == ("length", n)
    assert finished.rounds == sum(isinstance(e, Verified) for e in events) == -(-(n - 1) // 7)


def test_a_drafter_hears_how_much_still_fits(tiny_target, text_ids):
    drafter = Made(tiny_target, lambda seen: TokenTree((seen.next_token,), (-1,)))
    run(tiny_target, drafter, text_ids(5), n=5)
    assert [seen.room for seen in drafter.seen] == [3, 2, 1, 0]


def ending(make_target, text_ids, at: int) -> tuple[Target, tuple[int, ...], tuple[int, ...]]:
    """A target whose end token is the one it emits at place `at` of its text, for the first time there."""
    ids = text_ids(10)
    text = plain(make_target("llama", eos_token_id=None), ids, 20)
    assert text[at] not in text[:at]
    return make_target("llama", eos_token_id=text[at], seed=0, attention="sdpa", pad_token_id=0), ids, text


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5])
def test_an_end_token_inside_the_accepted_path_ends_there(make_target, text_ids, at, monkeypatch):
    target, ids, text = ending(make_target, text_ids, at)
    monkeypatch.setattr(target, "eos", frozenset({text[at]}))
    assert plain(target, ids, 20) == text[: at + 1]
    for rule in (GREEDY, REJECTION):
        events = run(target, Made(target, oracle([(*ids, *text)], length=6)), ids, rule, 20)
        finished = events[-1]
        assert (finished.tokens, finished.reason) == (text[: at + 1], "eos")
        if at > 0:
            verified = [e for e in events if isinstance(e, Verified)][-1]
            assert verified.emitted[-1] == text[at]
            assert len(verified.path) == len(verified.emitted)  # cut inside the path: no bonus token
            assert verified.bonus is None
            assert verified.committed == len(ids) + len(finished.tokens)


def test_the_context_ends_a_run(make_target, text_ids):
    target = make_target("llama", max_position_embeddings=32)
    ids = text_ids(20)
    text = plain(make_target("llama"), ids, 40)
    events = run(target, Made(target, oracle([(*ids, *text)], length=6)), ids, n=40)
    assert (events[-1].tokens, events[-1].reason) == (text[:12], "context")
    assert run(target, Made(target, bushy()), text_ids(31), n=9)[-1].reason == "context"
    with pytest.raises(BadInput, match=r"32 tokens.*at most 32"):
        run(target, Made(target, bushy()), text_ids(32), n=9)


@pytest.mark.parametrize(
    ("ids", "options", "expected"),
    [
        ([], {}, "empty"), ([1, 400], {}, "outside 0 to 319"), ([-1], {}, "outside"), ([1], {"n": 0}, "max_new_tokens=0"), ([1], {"n": -3}, "max_new_tokens=-3"),
        ([1] * 2048, {}, "2048 tokens"), ([1], {"rule": GREEDY, "sampling": Sampling(0.5)}, r"temperature 0 only, got 0\.5"),
    ],
)  # fmt: skip
def test_what_cannot_be_decoded_is_refused_before_any_forward(tiny_target, monkeypatch, ids, options, expected):
    monkeypatch.setattr(tiny_target, "_run", lambda *a, **k: pytest.fail("a forward ran"))
    with pytest.raises(BadInput, match=expected):
        run(tiny_target, Made(tiny_target, bushy()), [ids], **options)


def test_nothing_to_decode_is_refused(tiny_target):
    with pytest.raises(BadInput, match="nothing to decode"):
        list(decode(tiny_target, Made(tiny_target, bushy()), GREEDY, [], sampling=Sampling(), max_new_tokens=4))


# -- several rows


def test_rows_of_a_batch_equal_their_solo_runs(tiny_target, text_ids):
    prompts = [text_ids(n, n) for n in (5, 30, 12)]
    for sampling in (Sampling(), Sampling(0.9, seed=5)):
        alone = [plain(tiny_target, ids, 25, sampling=sampling) for ids in prompts]
        texts = [(*ids, *text, *text) for ids, text in zip(prompts, alone, strict=True)]
        events = run(tiny_target, Made(tiny_target, oracle(texts, wrong=7)), prompts, n=25, sampling=sampling)
        assert [tokens(events, row) for row in range(3)] == alone


def test_rows_finish_at_different_times(tiny_target, text_ids, monkeypatch):
    prompts = [text_ids(n, n) for n in (6, 9, 7)]
    alone = [plain(tiny_target, ids, 20) for ids in prompts]
    end = alone[1][3]
    monkeypatch.setattr(tiny_target, "eos", frozenset({end}))
    expected = [text[: text.index(end) + 1] if end in text else text for text in alone]
    drafter = Made(tiny_target, oracle([(*ids, *text) for ids, text in zip(prompts, alone, strict=True)], length=2), taps=(1, 3))
    events = run(tiny_target, drafter, prompts, n=20)
    assert [tokens(events, row) for row in range(3)] == expected
    assert len({e.rounds for e in events if isinstance(e, Finished)}) > 1
    assert [e.reason for e in events if isinstance(e, Finished)][1] == "eos"


def test_a_shared_forwards_time_is_split(tiny_target, text_ids):
    events = run(tiny_target, Made(tiny_target, bushy()), [text_ids(5), text_ids(6)], n=4)
    for row in range(2):
        finished = next(e for e in events if isinstance(e, Finished) and e.row == row)
        rounds = [e for e in events if isinstance(e, Verified) and e.row == row]
        for phase in ("draft", "verify", "accept", "commit"):
            assert finished.seconds[phase] == pytest.approx(sum(e.seconds[phase] for e in rounds))
        assert finished.seconds["record"] >= sum(e.seconds["record"] for e in rounds)
        assert finished.seconds["total"] == pytest.approx(sum(finished.seconds[p] for p in ("prefill", "draft", "verify", "accept", "commit")))
    assert sum(e.seconds["total"] for e in events if isinstance(e, Finished)) <= events[-1].seconds["wall"]


# -- events


def test_the_events_tell_the_whole_run(tiny_target):
    ids = tuple(tiny_target.encode(REPEATS))
    text = (*ids, *plain(tiny_target, ids, 20))
    events = run(tiny_target, Made(tiny_target, oracle([text], wrong=4)), ids, n=20)
    assert [type(e) for e in events[:2]] == [Started, Prefilled]
    assert isinstance(events[-1], Finished)
    rounds = list(zip(events[2:-1:2], events[3:-1:2], strict=True))
    emitted = [events[1].token]
    for number, (drafted, verified) in enumerate(rounds):
        assert (type(drafted), type(verified), drafted.round, verified.round) == (Drafted, Verified, number, number)
        assert drafted.tokens[0] == emitted[-1]
        assert [drafted.tokens[node] for node in verified.path] == list(verified.emitted[: len(verified.path)])
        assert all(verified.verdicts[node] == "accepted" for node in verified.path)
        assert all(drafted.parents[node] == (0, *verified.path)[i] for i, node in enumerate(verified.path))
        assert verified.bonus in (None, verified.emitted[-1])
        emitted += verified.emitted
        assert verified.committed == len(ids) + len(emitted) - (verified.bonus is not None)
    assert tuple(emitted) == events[-1].tokens
    assert events[-1].text == tiny_target.decode(emitted)
    assert events[-1].rounds == len(rounds)
    meta = events[0].meta
    assert meta["rule"] == {"name": "rejection", "knobs": {}, "lossless": True}
    assert meta["target"]["fingerprint"]["weights"] == tiny_target.fingerprint.weights
    assert set(meta) == {"target", "drafter", "rule", "sampling", "seed", "device", "dtype", "versions"}


def test_without_detail_only_what_counts_is_kept(tiny_target, text_ids):
    full = run(tiny_target, Made(tiny_target, bushy()), text_ids(8), n=10)
    lean = run(tiny_target, Made(tiny_target, bushy()), text_ids(8), n=10, detail=False)
    assert tokens(full) == tokens(lean)
    assert not any(isinstance(e, Drafted) for e in lean)
    assert [e.emitted for e in lean if isinstance(e, Verified)] == [e.emitted for e in full if isinstance(e, Verified)]


def test_taps_hand_over_the_states_of_the_committed_tokens(tiny_target, text_ids):
    ids = text_ids(9)
    text = (*ids, *plain(tiny_target, ids, 14))
    drafter = Made(tiny_target, oracle([text], wrong=4), taps=(1, 3))
    run(tiny_target, drafter, ids, n=14)
    for tap in (1, 3):
        states = torch.cat([seen.hidden[tap] for seen in drafter.seen])
        with torch.inference_mode():
            expected = tiny_target.model(input_ids=torch.tensor([text]), use_cache=False, output_hidden_states=True).hidden_states[tap][0]
        assert float((states - expected[: len(states)]).abs().max()) < 1e-3
        assert len(states) == len(drafter.seen[-1].tokens) - 1 or len(drafter.seen[-1].tokens) == len(text)
    assert drafter.seen[0].argmax == ()
    assert len(drafter.seen[1].argmax) == len(drafter.seen[1].logits)


# -- stopping and failing


def test_stopping_is_asked_once_a_round(tiny_target, text_ids):
    answers = iter([False, False, True])
    drafter = Made(tiny_target, bushy())
    events = run(tiny_target, drafter, text_ids(5), n=20, stopped=lambda: next(answers))
    assert (events[-1].reason, events[-1].rounds, drafter.closed) == ("stopped", 2, 1)


def test_closing_the_generator_ends_the_drafter_too(tiny_target, text_ids):
    drafter = Made(tiny_target, bushy())
    flow = decode(tiny_target, drafter, GREEDY, [Request(text_ids(5))], sampling=Sampling(), max_new_tokens=20)
    assert [type(next(flow)) for _ in range(4)] == [Started, Prefilled, Drafted, Verified]
    flow.close()
    assert drafter.closed == 1
    assert list(flow) == []


def failing(problem: Exception, after: int = 2) -> Callable:
    rounds = iter(range(1000))

    def make(seen) -> TokenTree:
        if next(rounds) >= after:
            raise problem
        return TokenTree((seen.next_token,), (-1,))

    return make


@pytest.mark.parametrize("problem", [RuntimeError("out of memory"), KeyError("lost"), TypeError("odd"), ZeroDivisionError("by zero"), AssertionError()])
def test_a_drafter_that_fails_ends_every_row_and_is_raised(tiny_target, text_ids, problem):
    flow = decode(
        tiny_target, Made(tiny_target, failing(problem, 4)), GREEDY, [Request(text_ids(4)), Request(text_ids(5))], sampling=Sampling(), max_new_tokens=9
    )
    events = []
    with pytest.raises(type(problem)):
        for event in flow:
            events.append(event)
    finished = [e for e in events if isinstance(e, Finished)]
    assert [(e.row, e.reason, len(e.tokens)) for e in finished] == [(0, "error", 3), (1, "error", 3)]
    assert all(e.message == (str(problem) or type(problem).__name__) for e in finished)


def test_a_row_that_was_done_keeps_its_reason(tiny_target, text_ids, monkeypatch):
    first = plain(tiny_target, text_ids(4), 1)[0]
    monkeypatch.setattr(tiny_target, "eos", frozenset({first}))
    events = []
    with pytest.raises(RuntimeError):
        for event in decode(
            tiny_target,
            Made(tiny_target, failing(RuntimeError("late"))),
            GREEDY,
            [Request(text_ids(4)), Request(text_ids(6, 2))],
            sampling=Sampling(),
            max_new_tokens=9,
        ):
            events.append(event)
    assert [(e.reason, e.message) for e in events if isinstance(e, Finished)] == [("eos", ""), ("error", "late")]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda seen: TokenTree((seen.next_token + 1,), (-1,)), "root is token"),
        (lambda seen: TokenTree((seen.next_token, 320), (-1, 0)), "token 320"),
        (lambda seen: TokenTree((seen.next_token, -1), (-1, 0)), "token -1"),
    ],
)
def test_a_tree_that_would_decode_a_wrong_text_is_refused(tiny_target, text_ids, make, expected):
    with pytest.raises(BadInput, match=expected):
        run(tiny_target, Made(tiny_target, make), text_ids(5), n=5)


def test_a_missing_tree_is_refused(tiny_target, text_ids):
    class Lazy(Drafter):
        def draft(self, seen):
            yield [TokenTree((seen[0].next_token,), (-1,))]

    with pytest.raises(BadInput, match="1 trees for 2 rows"):
        run(tiny_target, Lazy(tiny_target), [text_ids(4), text_ids(5)])


def test_two_threads_on_one_target_decode_as_alone(tiny_target, text_ids):
    jobs = {n: text_ids(6 + n, n) for n in range(2)}
    alone = {n: plain(tiny_target, ids, 25) for n, ids in jobs.items()}
    found: dict[int, tuple[int, ...]] = {}

    def work(n: int) -> None:
        found[n] = tokens(run(tiny_target, Made(tiny_target, bushy(n), taps=(n,)), jobs[n], n=25))

    threads = [threading.Thread(target=work, args=(n,)) for n in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_a_run_may_be_drained_from_another_thread(tiny_target, text_ids):
    """A page's handler is resumed on whichever thread is free: nothing may hang on the thread of the first step."""
    flow = decode(tiny_target, Made(tiny_target, bushy(), taps=(3,)), GREEDY, [Request(text_ids(5))], sampling=Sampling(), max_new_tokens=12)
    events: list[Event] = []
    while True:
        thread = threading.Thread(target=lambda: events.append(next(flow, None)))
        thread.start()
        thread.join()
        if events[-1] is None:
            break
    assert events[-2].tokens == plain(tiny_target, text_ids(5), 12)
    assert not torch.is_inference_mode_enabled()
