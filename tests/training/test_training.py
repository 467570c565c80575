"""The training steps on a tiny target: capture, batches and masks, the loss, a fit that resumes, the data writer, the replay."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from specviz.drafters.head_file import load_head
from specviz.errors import BadFile, BadInput, Missing
from specviz.training.data import Record, draft_vocabulary, held_out, read_records
from specviz.training.dataset import TOP, Dataset, shuffled_batches
from specviz.training.distil import Writing, distil
from specviz.training.features import capture, open_capture
from specviz.training.fit import Plan, fit
from specviz.training.soft_loss import soft_cross_entropy
from specviz.training.writer import Ask, write

QUIET = {"say": lambda text: None}
PLAN = Plan(epochs=2, tokens=96, draft_vocab=64, precision="fp32", warm_up=2, measure_every=100, save_every=100, held_out=0.2)


@pytest.fixture(scope="module")
def data(tmp_path_factory, text_ids):
    path = tmp_path_factory.mktemp("data") / "records.jsonl"
    lines = [{"ids": text_ids(14 + n % 9, seed=n), "answer_start": 4 + n % 3, "temperature": float(n % 2)} for n in range(30)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture(scope="module")
def features(tmp_path_factory, data, tiny_folder):
    return capture([data], tmp_path_factory.mktemp("features"), target=str(tiny_folder), shards=3, tokens_per_batch=64, **QUIET)


@pytest.fixture(scope="module")
def dataset(features, tiny_target):
    vocabulary = torch.tensor(draft_vocabulary([r for n in features.done() for r in features.records(n)], 64, [2]))
    made = Dataset([features], (3,), vocabulary, tiny_target.vocab_size, 0.2)
    made.teach(tiny_target.model.get_output_embeddings().weight.detach()[vocabulary])
    return made


def test_captured_states_are_the_target_s(features, tiny_target):
    assert features.taps == (0, 1, 2, 3)
    assert features.fingerprint.weights != "unknown"
    for shard in features.done():
        row = 0
        for record in features.records(shard):
            with torch.inference_mode():
                out = tiny_target.model.get_decoder()(input_ids=torch.tensor([record.ids]), output_hidden_states=True, use_cache=False)
            for tap in features.taps:
                kept = torch.from_numpy(np.array(features.rows(shard, tap)[row : row + len(record.ids)], dtype=np.float32))
                torch.testing.assert_close(kept, out.hidden_states[tap][0], atol=2e-2, rtol=2e-3)  # fp16
            row += len(record.ids)


def test_capture_keeps_finished_shards(features, data, tiny_folder):
    stamp = (features.folder / "0000-tap3.npy").stat().st_mtime_ns
    (features.folder / "0001.json").unlink()
    capture([data], features.folder.parent, target=str(tiny_folder), shards=3, **QUIET)
    assert (features.folder / "0000-tap3.npy").stat().st_mtime_ns == stamp
    assert open_capture(features.folder).done() == [0, 1, 2]


def test_masks_cover_what_a_drafter_is_asked(dataset):
    batch = dataset.batch(dataset.train[:5])
    for offset in (2, 3, 4):
        targets = batch.ahead(offset)
        for b, item in enumerate(dataset.train[:5]):
            ids, start = item.record.ids, item.record.answer_start
            asked = {i for i in range(start - 1, len(ids) - offset) if ids[i + offset] in dataset.vocabulary.tolist()}
            assert set(targets.mask[b].nonzero().flatten().tolist()) == asked
            assert all(int(targets.tokens[b, i]) == ids[i + offset] for i in asked)
        missed = sum(sum(t not in dataset.vocabulary.tolist() for t in i.record.ids[i.record.answer_start - 1 + offset :]) for i in dataset.train[:5])
        assert targets.missed == missed


def test_the_teacher_is_the_target(dataset, tiny_target):
    batch = dataset.batch(dataset.train[:2])
    record, targets = dataset.train[0].record, batch.ahead(2)
    with torch.inference_mode():
        logits = tiny_target.model(input_ids=torch.tensor([record.ids]), use_cache=False).logits[0]
    row = record.answer_start
    expected = logits[row + 1, dataset.vocabulary].softmax(-1).topk(TOP)
    assert targets.indices[0, row, :3].tolist() == expected.indices[:3].tolist()
    assert float(targets.values[0, row].sum()) == pytest.approx(1.0, abs=1e-2)


def test_soft_loss_equals_the_plain_one():
    torch.manual_seed(0)
    hidden, rows = torch.randn(300, 16, requires_grad=True), torch.randn(50, 16)
    indices = torch.stack([torch.randperm(50)[:5] for _ in range(300)])
    values = torch.rand(300, 5).softmax(-1)
    weights = torch.rand(300)
    (soft_cross_entropy(hidden, rows, values, indices) * weights).sum().backward()
    mine, hidden.grad = hidden.grad.clone(), None
    log_q = (hidden @ rows.T).log_softmax(-1).gather(1, indices)
    plain = -(values * log_q).sum(-1)
    torch.testing.assert_close(soft_cross_entropy(hidden, rows, values, indices), plain)
    (plain * weights).sum().backward()
    torch.testing.assert_close(mine, hidden.grad, atol=1e-5, rtol=1e-4)


def test_splits_and_batches(features):
    records = [r for n in features.done() for r in features.records(n)]
    assert held_out(records[0], 1.0)
    assert not held_out(records[0], 0.0)
    same_prompt = Record((*records[0].ids[: records[0].answer_start], 9, 9), records[0].answer_start)
    assert all(held_out(records[0], s) == held_out(same_prompt, s) for s in (0.1, 0.3, 0.5, 0.9))
    vocabulary = draft_vocabulary([Record((5, 7, 7, 8, 8, 8), 1)], 2, [2])
    assert vocabulary == [2, 8]


def test_every_record_comes_once_an_epoch(dataset):
    one, again, other = (shuffled_batches(dataset.train, seed, 96) for seed in (1, 1, 2))
    assert one == again != other
    assert sorted(i.row + 1000 * i.shard for b in one for i in b) == sorted(i.row + 1000 * i.shard for i in dataset.train)
    assert all(len(b) * max(len(i.record.ids) for i in b) <= 96 for b in one)


@pytest.mark.parametrize(("method", "knobs"), [("eagle", {"unroll": 2}), ("eagle3", {"unroll": 2}), ("hydra", {"heads": 3}), ("medusa", {"heads": 3})])
def test_an_interrupted_fit_ends_with_the_same_weights(method, knobs, features, tiny_folder, tmp_path):
    common = {"target": str(tiny_folder), "knobs": knobs, **QUIET}
    whole = fit(method, features.folder, out=tmp_path / "whole", run=tmp_path / "run", plan=PLAN, **common)
    half = Plan(**{**PLAN.__dict__, "stop_after": 3})
    fit(method, features.folder, out=tmp_path / "half", run=tmp_path / "other", plan=half, **common)
    fit(method, features.folder, out=tmp_path / "half", run=tmp_path / "other", plan=PLAN, **common)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "half"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert len(losses) == whole.steps > 3
    head = load_head(tmp_path / "whole", method)
    assert head.config.fingerprint == features.fingerprint
    assert head.config.training["data"] == features.data
    with pytest.raises(BadInput, match="Give --run another folder"):
        fit(method, features.folder, out=tmp_path / "half", run=tmp_path / "other", plan=Plan(**{**PLAN.__dict__, "epochs": 3}), **common)


def test_training_learns(features, tiny_folder, tmp_path):
    plan = Plan(**{**PLAN.__dict__, "epochs": 12, "rate": 3e-3})
    fit("medusa", features.folder, target=str(tiny_folder), out=tmp_path / "head", run=tmp_path / "run", plan=plan, **QUIET)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_a_fit_ends_with_its_clock(features, tiny_folder, tmp_path, monkeypatch):
    clock = iter(range(10_000))  # every look at the clock is a second later
    monkeypatch.setattr("specviz.training.loop.time.monotonic", lambda: float(next(clock)))
    plan = replace(PLAN, epochs=50, within=20.0)
    fitted = fit("medusa", features.folder, target=str(tiny_folder), out=tmp_path / "head", run=tmp_path / "run", plan=plan, **QUIET)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert 5 <= fitted.steps == len(log) < 20
    assert log[-1]["rate"] < 0.2 * plan.rate < max(one["rate"] for one in log), "the rate falls with the clock"
    training = load_head(tmp_path / "head", "medusa").config.training
    assert 0 < training["epochs"] < 50, "what was really gone through"


def test_a_fit_begins_from_an_earlier_head(features, tiny_folder, tmp_path):
    def made(name, plan, **more):
        return fit("eagle", features.folder, target=str(tiny_folder), out=tmp_path / name, run=tmp_path / f"{name}-run", plan=plan, **more, **QUIET)

    made("first", PLAN)
    begun = replace(PLAN, draft_vocab=32, rate=1e-9, epochs=1, stop_after=1)  # a step that changes nothing
    second = load_head(made("second", begun, start=tmp_path / "first").folder, "eagle")
    first = load_head(tmp_path / "first", "eagle")
    assert torch.equal(first.vocabulary, second.vocabulary)
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert "start" in second.config.training
    assert "start" not in first.config.training
    fit("medusa", features.folder, target=str(tiny_folder), out=tmp_path / "four", run=tmp_path / "r4", plan=begun, **QUIET)
    with pytest.raises(BadInput, match="heads=4, this fit makes 2"):
        fit(
            "medusa",
            features.folder,
            target=str(tiny_folder),
            out=tmp_path / "two",
            run=tmp_path / "r2",
            plan=begun,
            knobs={"heads": 2},
            start=tmp_path / "four",
            **QUIET,
        )


def test_wrong_input_is_named(features, tiny_folder, tmp_path, data):
    with pytest.raises(BadInput, match="No training for 'nothing'"):
        fit("nothing", features.folder, target=str(tiny_folder), plan=PLAN, **QUIET)
    with pytest.raises(Missing, match="No captured features"):
        open_capture(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"ids": [1, 2]}')
    with pytest.raises(BadFile, match=r"bad\.jsonl line 1"):
        read_records([tmp_path / "bad.jsonl"])
    with pytest.raises(Missing, match="No training data"):
        read_records([tmp_path / "none.jsonl"])


def test_rows_filled_together_are_answered_as_alone(tiny_target, text_ids):
    asks = [Ask(text_ids(3 + 5 * (n % 4) + n, seed=n), float(n % 2), 6) for n in range(12)] + [Ask(text_ids(1, seed=50), 0.0, 4)]
    together, alone = (write(tiny_target, asks, seed=3, batch=batch) for batch in (9, 1))
    assert together == alone
    cache = tiny_target.new_cache(1, 64)
    state = tiny_target.prefill(asks[4].prompt, cache).logits[0, -1]
    assert together[4][0] == int(state.argmax()), "the first token follows the whole prompt"


def test_distil_is_repeatable_and_goes_on(tiny_target, tmp_path):
    (tmp_path / "prompts.txt").write_text("one\ntwo three\nfour\nfive\nsix\n")
    writing = Writing(max_new_tokens=6, batch=2, per_shard=3, temperatures=(0.0, 1.0), prompt_tokens=8)
    shards = distil(tiny_target, [tmp_path / "prompts.txt"], tmp_path / "a", own=3, writing=writing, **QUIET)
    texts = [path.read_text() for path in shards]
    shards[1].unlink()
    stamp = shards[0].stat().st_mtime_ns
    again = distil(tiny_target, [tmp_path / "prompts.txt"], tmp_path / "a", own=3, writing=writing, **QUIET)
    assert [path.read_text() for path in again] == texts
    assert again[0].stat().st_mtime_ns == stamp
    records = read_records(shards)
    assert {r.temperature for r in records} == {0.0, 1.0}
    greedy = next(r for r in records if r.temperature == 0)
    with torch.inference_mode():
        logits = tiny_target.model(input_ids=torch.tensor([greedy.ids]), use_cache=False).logits[0]
    assert tuple(logits.argmax(-1).tolist()[greedy.answer_start - 1 : -1]) == greedy.answer


def test_two_processes_give_the_loss_curve_of_one(features, tiny_folder, tmp_path):
    """With the same global batch, on the CPU, started as `accelerate launch` starts them."""
    plan = [word for name, value in PLAN.__dict__.items() if isinstance(value, int | float | str) for word in ("--plan", f"{name}={value}")]
    command = ["-m", "specviz", "train", "eagle", "--features", str(features.folder), "--target", str(tiny_folder), *plan, "--threads", "1"]
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    for name, words in (("one", command), ("two", [*launch, "--main_process_port", str(_free_port()), *command])):
        there = [sys.executable, *words, "--run", str(tmp_path / name), "--out", str(tmp_path / name / "head")]
        done = subprocess.run(
            there, capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = ([json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()] for name in ("one", "two"))
    assert len(one) == len(two) > 3
    for first, second in zip(one, two, strict=True):
        numbers = [{k: v for k, v in record.items() if isinstance(v, float) and k != "seconds"} for record in (first, second)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=1e-4)
    assert one[-1]["acceptance"] == two[-1]["acceptance"]
    heads = [load_file(tmp_path / name / "head" / "model.safetensors") for name in ("one", "two")]
    assert all(torch.allclose(heads[0][name].float(), heads[1][name].float(), atol=2e-3) for name in heads[0])


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_fit_needs_records_to_train_on_and_some_held_out(features, tiny_folder, tmp_path):
    for share, told in ((0.0, "0 held out"), (1.0, "0 are left to train on")):
        with pytest.raises(BadInput, match=told):
            fit("medusa", features.folder, target=str(tiny_folder), run=tmp_path, plan=replace(PLAN, held_out=share), **QUIET)


def test_features_given_twice_are_refused(features, tiny_folder, tmp_path):
    with pytest.raises(BadInput, match="given twice"):
        fit("medusa", [features.folder, features.folder.parent / "." / features.folder.name], target=str(tiny_folder), run=tmp_path / "run", plan=PLAN, **QUIET)
