"""What a fit may go on from: its own state and nothing else; a start from another head; what is recorded of both."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.drafters.head_file import VOCABULARY, WEIGHTS, load_head
from specviz.errors import BadFile, BadInput
from specviz.training.features import capture, default_taps
from specviz.training.fit import Plan, fit
from specviz.training.methods.eagle3 import Eagle3Lesson
from specviz.training.pipeline import Order, _why_train, train_shares
from specviz.training.state import PROGRESS

QUIET = {"say": lambda text: None}
PLAN = Plan(epochs=2, tokens=96, draft_vocab=64, precision="fp32", warm_up=2, measure_every=100, save_every=2, held_out=0.2)


@pytest.fixture(scope="module")
def features(tmp_path_factory, text_ids, tiny_folder):
    data = tmp_path_factory.mktemp("data") / "records.jsonl"
    lines = [{"ids": text_ids(14 + n % 9, seed=n), "answer_start": 4 + n % 3, "temperature": 0.0} for n in range(30)]
    data.write_text("\n".join(map(json.dumps, lines)))
    return capture([data], tmp_path_factory.mktemp("features"), target=str(tiny_folder), shards=3, **QUIET)


@pytest.fixture(scope="module")
def run_fit(features, tiny_folder):
    def run(folder, plan=PLAN, method="medusa", **more):
        return fit(method, features.folder, target=str(tiny_folder), out=folder / "head", run=folder / "run", plan=plan, **more, **QUIET)

    return run


@pytest.mark.parametrize(
    ("change", "named"), [({"plan": replace(PLAN, rate=0.1)}, "rate=0.001, this one has 0.1"), ({"plan": replace(PLAN, seed=5)}, "seed=0"), ({"knobs": {"heads": 2}}, "knobs=")]
)  # fmt: skip
def test_a_fit_does_not_go_on_from_one_with_other_settings(change, named, run_fit, tmp_path):
    run_fit(tmp_path)
    with pytest.raises(BadInput, match=rf"{named}.*Give --run another folder"):
        run_fit(tmp_path, **change)


def test_a_finished_fit_is_not_taken_for_one_from_a_start(run_fit, tmp_path):
    run_fit(tmp_path / "a")
    run_fit(tmp_path / "b")
    with pytest.raises(BadInput, match="start=None"):
        run_fit(tmp_path / "b", start=tmp_path / "a" / "head")


def test_how_often_it_saves_and_when_it_ends_may_change(run_fit, tmp_path):
    run_fit(tmp_path, replace(PLAN, stop_after=1))
    assert run_fit(tmp_path, replace(PLAN, save_every=7, measure_every=3, within=1e6)).steps > 1


@pytest.mark.parametrize("damage", ["optimizer cut", "optimizer empty", "weights cut", "weights empty", "[1]", '{"step": 2, "stem": "step2"}', '{"step": 9e9}'])
def test_a_damaged_state_is_named(damage, run_fit, tmp_path):
    run_fit(tmp_path, replace(PLAN, stop_after=2))
    part, _, how = damage.partition(" ")
    kinds = {"optimizer": "*.optimizer", "weights": "*.safetensors"}
    if part in kinds:
        (file,) = (tmp_path / "run").glob(kinds[part])
        file.write_bytes(file.read_bytes()[: 3000 if how == "cut" else 0])
    else:
        (tmp_path / "run" / PROGRESS).write_text(damage)
    with pytest.raises(BadFile, match="Give --run another folder or delete it"):
        run_fit(tmp_path)


def test_a_fit_without_a_step_saves_nothing(run_fit, tmp_path):
    with pytest.raises(BadInput, match="Not one step was made within=1e-09 seconds"):
        run_fit(tmp_path, replace(PLAN, within=1e-9))
    assert not (tmp_path / "head").exists()
    with pytest.raises(BadInput, match="within=inf"):
        replace(PLAN, within=float("inf"))


def test_a_start_with_tokens_that_the_target_lacks_is_refused(run_fit, tiny_target, tmp_path):
    run_fit(tmp_path / "a")
    weights = load_file(tmp_path / "a" / "head" / WEIGHTS)
    save_file(weights | {VOCABULARY: weights[VOCABULARY] + tiny_target.vocab_size}, tmp_path / "a" / "head" / WEIGHTS)
    with pytest.raises(BadFile, match=r"names token \d+, but the target has 320"):
        run_fit(tmp_path / "b", start=tmp_path / "a" / "head")


@pytest.mark.parametrize("plan", [replace(PLAN, epochs=500, within=0.3), replace(PLAN, draft_vocab=8192)], ids=["its clock", "few tokens"])
def test_a_head_that_got_less_than_was_asked_is_still_the_one_asked_for(plan, run_fit, features, tmp_path):
    head = run_fit(tmp_path, plan).folder
    training = load_head(head, "medusa").config.training
    assert training["epochs"] < plan.epochs or training["draft_vocab"] < plan.draft_vocab
    asked = Order("tiny", tmp_path, plan=plan)
    assert _why_train(head, features, json.loads(json.dumps(asked.plan.__dict__))) is None
    assert _why_train(head, features, plan.__dict__ | {"epochs": plan.epochs + 1}) is not None


def test_a_learning_curve_is_of_one_kind_of_fit(run_fit, features, tiny_folder, tmp_path):
    run_fit(tmp_path)
    common = {"target": str(tiny_folder), "run": tmp_path / "eagle", "knobs": {}, **QUIET}
    train_shares("medusa", features.folder, (0.5,), plan=PLAN, start=tmp_path / "head", **common)
    share = tmp_path / "eagle-share0.5"
    assert "start" in load_head(share / "head", "medusa").config.training
    stamp = (share / "log.jsonl").read_text()
    train_shares("medusa", features.folder, (0.5,), plan=PLAN, start=tmp_path / "head", **common)
    assert (share / "log.jsonl").read_text() == stamp, "a finished one is kept"
    for other in ({"plan": PLAN}, {"plan": replace(PLAN, rate=0.1), "start": tmp_path / "head"}):
        with pytest.raises(BadInput, match=r"share0\.5 holds a fit with (start|rate)="):
            train_shares("medusa", features.folder, (0.5,), **other, **common)


@pytest.mark.parametrize(("layers", "taps"), [(1, (0, 1)), (2, (1, 2)), (3, (0, 1, 2, 3)), (30, (2, 15, 27, 30))])
def test_small_models_have_taps_too(layers, taps, make_target):
    assert default_taps(layers) == taps
    if layers < 4:
        target = make_target("llama", num_hidden_layers=layers)
        frozen = type("Frozen", (), {"config": target.model.config, "vocabulary": torch.arange(8), "norm": torch.ones(target.hidden_size)})
        assert set(Eagle3Lesson(frozen).taps) <= set(taps)


def test_a_head_of_whole_numbers_is_refused(run_fit, tmp_path):
    head = run_fit(tmp_path).folder
    weights = load_file(head / WEIGHTS)
    name = next(name for name in weights if name != VOCABULARY)
    save_file(weights | {name: weights[name].to(torch.int8)}, head / WEIGHTS)
    with pytest.raises(BadFile, match=r"holds .*torch\.int8"):
        load_head(head, "medusa")
    save_file({one: held.to(torch.float8_e4m3fn) if one == name else held for one, held in weights.items()}, head / WEIGHTS)
    assert load_head(head, "medusa").weights[name].dtype == torch.float32
