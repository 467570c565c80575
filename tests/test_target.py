"""Logits at every node of a tree equal a cacheless forward of that node's path: the ground that everything else stands on."""

from __future__ import annotations

import json
import threading
from random import Random

import pytest
import torch
from safetensors.torch import load_file, save_file
from trees import plain_logits, random_path, random_tree

from specviz.errors import BadInput, CacheFull, Missing, UnsupportedModel
from specviz.target import PREFILL_CHUNK, Target, pick_device
from specviz.tree import TokenTree, chain

TOLERANCE = 1e-3
MODELS = [
    ("llama", "sdpa"),
    ("llama", "eager"),
    ("llama", "tree"),
    ("qwen3", "sdpa"),
    ("qwen3", "eager"),
    ("qwen3", "tree"),
    ("mistral", "sdpa"),
    ("mistral", "eager"),
    ("mistral", "tree"),
]


def worst(target: Target, prefix: list[int], tree: TokenTree, logits: torch.Tensor) -> float:
    return float((logits[: len(tree)] - plain_logits(target, prefix, tree)).abs().max())


def keep(prefix: list[int], tree: TokenTree, path: tuple[int, ...]) -> list[int]:
    return [*prefix, tree.tokens[0], *(tree.tokens[node] for node in path)]


def check_rounds(target: Target, lengths: tuple[int, ...], sizes: tuple[int, ...], seed: int) -> None:
    """Prefills one row per length, then verifies, commits and sometimes rolls back; every node of every round is compared."""
    rng = Random(seed)
    prefixes = [[rng.randrange(target.vocab_size) for _ in range(length)] for length in lengths]
    cache = target.new_cache(len(lengths), max(lengths) + 200)
    for row, prefix in enumerate(prefixes):
        target.prefill(prefix, cache, row)
    for number, size in enumerate(sizes):
        trees = [random_tree(rng, max(1, size - 7 * row), target.vocab_size) for row in range(len(lengths))]
        output = target.forward(trees, cache)
        for row, tree in enumerate(trees):
            assert worst(target, prefixes[row], tree, output.logits[row]) < TOLERANCE, (row, number)
            path = random_path(rng, tree)
            cache.commit(row, (0, *path))
            prefixes[row] = keep(prefixes[row], tree, path)
            if number == 1 and len(prefixes[row]) > 3:
                cache.rollback(row, len(prefixes[row]) - 2)
                del prefixes[row][-2:]
            assert cache.lengths[row] == len(prefixes[row])


@pytest.mark.parametrize(("kind", "attention"), MODELS)
def test_one_row(make_target, kind, attention):
    check_rounds(make_target(kind, attention=attention), (17,), (128, 33, 1, 64), seed=1)


@pytest.mark.parametrize(("kind", "attention"), MODELS)
def test_three_rows_of_different_lengths(make_target, kind, attention):
    check_rounds(make_target(kind, attention=attention), (1, 40, 9), (64, 30, 5), seed=2)


@pytest.mark.parametrize("length", [1, 2, 600])
def test_prefix_lengths(tiny_target, length):
    check_rounds(tiny_target, (length,), (24, 8), seed=length)


def test_a_loaded_target_with_packed_layers(tiny_folder):
    target = Target.load(str(tiny_folder))
    check_rounds(target, (30,), (40, 20), seed=3)
    check_rounds(target, (3, 25, 12), (20, 10), seed=4)


def test_float64_shows_that_only_rounding_is_left(make_target):
    target, rng = make_target("llama", dtype=torch.float64), Random(0)
    prefix, tree = [rng.randrange(320) for _ in range(50)], random_tree(rng, 60, 320)
    cache = target.new_cache(1, 200)
    target.prefill(prefix, cache)
    assert worst(target, prefix, tree, target.forward([tree], cache).logits[0]) < 1e-9


def test_bfloat16_runs_and_stays_near(make_target):
    target, rng = make_target("llama", dtype=torch.bfloat16), Random(0)
    prefix, tree = [rng.randrange(320) for _ in range(20)], random_tree(rng, 20, 320)
    cache = target.new_cache(1, 64)
    target.prefill(prefix, cache)
    logits = target.forward([tree], cache).logits[0]
    assert logits.dtype == torch.bfloat16
    plain = plain_logits(target, prefix, tree).float()
    assert float((logits.float() - plain).abs().max()) < 0.1 * float(plain.abs().max())
    target.self_check()


@pytest.mark.real
def test_the_real_model(real_model):
    check_rounds(real_model, (30,), (20, 10), seed=5)
    check_rounds(real_model, (20, 5), (8, 6), seed=6)


def test_rows_may_be_named_in_any_order(tiny_target, text_ids):
    cache, prefixes = tiny_target.new_cache(3, 60), [list(text_ids(n, n)) for n in (4, 9, 6)]
    for row, prefix in enumerate(prefixes):
        tiny_target.prefill(prefix, cache, row)
    rng = Random(1)
    for rows in ([2, 0, 1], [2, 0], [1]):
        trees = [random_tree(rng, 6 + row, 320) for row in rows]
        logits = tiny_target.forward(trees, cache, rows).logits
        assert all(worst(tiny_target, prefixes[row], tree, logits[i]) < TOLERANCE for i, (row, tree) in enumerate(zip(rows, trees, strict=True)))


@pytest.mark.parametrize("length", [PREFILL_CHUNK, PREFILL_CHUNK + 1, 2 * PREFILL_CHUNK + 88])
@pytest.mark.parametrize("attention", ["sdpa", "eager", "tree"])
def test_a_prompt_in_chunks_equals_one_forward(make_target, text_ids, length, attention):
    target, ids = make_target("llama", attention=attention), list(text_ids(length))
    output = target.prefill(ids, target.new_cache(1, length), taps=(0, 2))
    with torch.inference_mode():
        plain = target.model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    assert float((output.logits[0, -1] - plain.logits[0, -1]).abs().max()) < TOLERANCE
    assert all(float((output.hidden[tap] - plain.hidden_states[tap]).abs().max()) < TOLERANCE for tap in (0, 2))


def test_a_second_prefill_continues_the_row(tiny_target, text_ids):
    ids = list(text_ids(30))
    once, twice = tiny_target.new_cache(1, 40), tiny_target.new_cache(1, 40)
    whole = tiny_target.prefill(ids, once).logits
    tiny_target.prefill(ids[:11], twice)
    assert float((tiny_target.prefill(ids[11:], twice).logits - whole).abs().max()) < TOLERANCE


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_taps_are_the_states_entering_a_layer_and_the_final_norm(make_target, text_ids, kind):
    target, ids, taps = make_target(kind), list(text_ids(12)), (0, 1, 2, 3)
    cache = target.new_cache(1, 40)
    prefilled = target.prefill(ids, cache, taps=taps).hidden
    with torch.inference_mode():
        plain = target.model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True).hidden_states
    assert all(float((prefilled[tap] - plain[tap]).abs().max()) < TOLERANCE for tap in taps)

    tree = chain(5, [6, 7])
    hidden = target.forward([tree], cache, taps=taps).hidden
    with torch.inference_mode():
        plain = target.model(input_ids=torch.tensor([[*ids, 5, 6, 7]]), use_cache=False, output_hidden_states=True).hidden_states
        assert torch.allclose(target.model.lm_head(hidden[3]), target.model.lm_head(plain[3][:, -3:]), atol=TOLERANCE)
    assert all(float((hidden[tap] - plain[tap][:, -3:]).abs().max()) < TOLERANCE for tap in taps)


def test_taps_leave_no_hook_behind(tiny_target, text_ids):
    def hooks() -> int:
        return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in tiny_target.model.modules())

    before = hooks()
    with pytest.raises(BadInput, match=r"tap 4 does not exist.*layers 0 to 2, and 3"):
        tiny_target.prefill(text_ids(4), tiny_target.new_cache(1, 8), taps=(0, 4))
    assert hooks() == before


def test_a_forward_that_does_not_fit_is_refused_before_it_writes(tiny_target, text_ids):
    cache = tiny_target.new_cache(1, 20)
    tiny_target.prefill(text_ids(10), cache)
    before = cache.buffer.clone()
    with pytest.raises(CacheFull, match=r"10 committed tokens \+ 11 new nodes do not fit a cache of 20"):
        tiny_target.forward([chain(1, range(10))], cache)
    with pytest.raises(CacheFull, match="11 new"):
        tiny_target.prefill(text_ids(11), cache)
    assert torch.equal(cache.buffer, before)
    assert cache.lengths == [10]
    tiny_target.forward([chain(1, range(9))], cache)  # exactly full is fine


def test_an_empty_prompt_is_refused(tiny_target):
    with pytest.raises(BadInput, match="empty"):
        tiny_target.prefill([], tiny_target.new_cache(1, 8))


def test_two_threads_share_one_target(tiny_target):
    """Taps are hooks on the shared model, so one thread's states must never reach another."""
    rng = Random(3)
    jobs = [([rng.randrange(320) for _ in range(5 + n)], [random_tree(rng, 9, 320) for _ in range(12)]) for n in range(2)]

    def work(job: int, results: dict[int, list[torch.Tensor]]) -> None:
        prefix, trees = jobs[job]
        cache, taps = tiny_target.new_cache(1, 60), (job, 3)
        seen = [tiny_target.prefill(prefix, cache, taps=taps).hidden[job]]
        for tree in trees:
            output = tiny_target.forward([tree], cache, taps=taps)
            seen += [output.logits, output.hidden[job], output.hidden[3]]
        results[job] = seen

    alone: dict[int, list[torch.Tensor]] = {}
    together: dict[int, list[torch.Tensor]] = {}
    for job in range(2):
        work(job, alone)
    threads = [threading.Thread(target=work, args=(job, together)) for job in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for job in range(2) for a, b in zip(alone[job], together[job], strict=True))


def test_the_self_check_finds_a_model_that_sees_too_much(make_target, monkeypatch):
    target = make_target("llama", seed=9)
    target.self_check()
    real = target._mask
    monkeypatch.setattr(target, "_mask", lambda *args: torch.zeros_like(real(*args)))
    with pytest.raises(UnsupportedModel, match="differ from a plain forward"):
        target.self_check()


def test_load_from_a_folder(tiny_folder, tiny_target):
    target = Target.load(str(tiny_folder))
    assert (target.layers, target.hidden_size, target.vocab_size, target.context) == (3, 64, 320, 2048)
    assert target.eos == {2}
    assert target.dtype == torch.float32
    assert target.decode(target.encode("hi")) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert Target.load(str(tiny_folder)).fingerprint == target.fingerprint
    assert Target.load(str(tiny_folder), dtype="bfloat16").fingerprint.dtype == "bfloat16"
    cache, ids = target.new_cache(1, 8), [5, 6, 7]
    same = tiny_target.prefill(ids, tiny_target.new_cache(1, 8)).logits
    assert float((target.prefill(ids, cache).logits - same).abs().max()) < TOLERANCE


def test_a_model_without_a_template_reads_plain_text(tiny_target, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(tiny_tokenizer, "chat_template", None)
    assert tiny_target.decode(tiny_target.encode("the cat")) == "the cat"


@pytest.mark.parametrize(("arguments", "error", "expected"), [
    ({"name": "nowhere"}, Missing, "No model 'nowhere'"),
    ({"device": "abacus"}, BadInput, "device='abacus'"),
    ({"dtype": "int8"}, BadInput, "dtype='int8'"),
])  # fmt: skip
def test_what_cannot_be_loaded_says_so(tiny_folder, arguments, error, expected):
    with pytest.raises(error, match=expected):
        Target.load(**{"name": str(tiny_folder)} | arguments)


@pytest.mark.parametrize("damage", ["cut", "garbage", "config", "lost", "size"])
def test_a_damaged_folder_is_named(tiny_folder, tmp_path, damage):
    for file in tiny_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "garbage":
        weights.write_bytes(b"not safetensors at all")
    elif damage == "lost":
        tensors = load_file(weights)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        save_file(tensors, weights, {"format": "pt"})
    elif damage == "size":
        config.write_text(json.dumps({**json.loads(config.read_text()), "intermediate_size": 80}))
    else:
        config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "no_such_model"}))
    with pytest.raises(Missing, match=tmp_path.name):
        Target.load(str(tmp_path))


def test_devices():
    assert pick_device("cpu") == (torch.device("cpu"), ())
    assert pick_device(None)[0].type in ("cpu", "cuda")
    place, notes = pick_device("meta")
    assert (place.type, "untested" in notes[0]) == ("meta", True)
    if not torch.cuda.is_available():
        place, notes = pick_device("cuda")
        assert (place.type, "no CUDA device" in notes[0]) == ("cpu", True)


@pytest.mark.parametrize("chat", [True, False])
def test_bytes_that_are_no_text_are_refused_in_words(tiny_target, chat):
    with pytest.raises(BadInput, match="not UTF-8"):
        tiny_target.encode("bad\udcff", chat=chat)
