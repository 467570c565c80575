"""`train all` from a checkpoint and prompts to heads with reports; a second run has nothing to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cli_fixture import run_fixture  # noqa: F401

from specviz import hub, sources
from specviz.analysis.head_report import load_report
from specviz.build import build_drafter, parse_spec
from specviz.errors import BadInput, Missing
from specviz.target import Target
from specviz.training import pipeline
from specviz.training.distil import Writing
from specviz.training.fit import Plan
from specviz.training.pipeline import Order, find_methods, train_all
from specviz.training.probe import forward_speed, in_words, writing_seconds
from specviz.training.report import Measures

PLAN = Plan(epochs=1, tokens=128, draft_vocab=64, precision="fp32", warm_up=2, measure_every=50, save_every=50, held_out=0.3)


@pytest.fixture
def order(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models"))
    (tmp_path / "prompts.txt").write_text(
        "".join(f"the cat sat on the {word}\n" for word in ("mat", "log", "dog", "day", "sun", "sea", "bus", "ice", "tea", "sky"))
    )
    return Order(
        "tiny-tuned",
        tiny_folder,
        prompts=(tmp_path / "prompts.txt",),
        methods=("eagle", "medusa"),
        plan=PLAN,
        knobs={"eagle": {"unroll": 2}, "medusa": {"heads": 3}},
        writing=Writing(max_new_tokens=10, batch=4, per_shard=6, prompt_tokens=8),
        max_new_tokens=10,
        measures=Measures(nodes=(4, 24), checked=2, sampled=1, temperatures=(1.0,)),
        work=tmp_path / "work",
    )


def test_from_prompts_to_reports_and_nothing_twice(order, tiny_folder, tmp_path, monkeypatch):
    told, loads = [], []

    def load():
        loads.append(1)
        target = Target.load(str(tiny_folder))
        target.name = "tiny-tuned"
        return target

    reports = train_all(replace(order, evaluation={"quiz": 0.25}), load, told.append)
    assert [report.method for report in reports] == ["eagle", "medusa"]
    text = "\n".join(told)
    assert "distil: 2 of 2 files to write, 10 answers; at most about" in text
    assert "features: 0.00 GB to write; about" in text
    assert "train eagle: there is no head in" in text
    for report in reports:
        head = tmp_path / "models" / "tiny-tuned" / report.method
        assert load_report(head) == report
        assert report.text.name == "held-out prompts"
        assert report.evaluation == {"quiz": 0.25}
        assert "| quiz | 0.25 |" in (head / "README.md").read_text()
    # the heads are where the drafters look for them
    drafter = build_drafter(load(), parse_spec("eagle@chain"))
    assert drafter.config.training["unroll"] == 2

    def refuse(*args, **options):
        raise AssertionError("nothing should run again")

    for name in ("distil", "fit", "head_report"):
        monkeypatch.setattr(pipeline, name, refuse)
    told.clear()
    again = train_all(replace(order, evaluation={"quiz": 0.5}), load, told.append)
    text = "\n".join(told)
    assert all(f"{step}: skipped" in text for step in ("distil", "features", "train eagle", "train medusa"))
    assert "only the evaluation results are new" in text
    assert [report.evaluation for report in again] == [{"quiz": 0.5}] * 2
    assert again[0].greedy == reports[0].greedy
    with pytest.raises(AssertionError, match="nothing should run again"):
        train_all(replace(order, plan=replace(PLAN, epochs=2)), load, told.append)
    assert "was trained with epochs=1, now it is 2" in told[-1]


def test_shares_of_the_data_make_a_curve(order, tiny_folder, text_ids, tmp_path):
    lines = [{"ids": text_ids(16, seed=n), "answer_start": 4} for n in range(20)]
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, lines)))
    few = replace(order, prompts=(), data=(tmp_path / "records.jsonl",), methods=("medusa",), shares=(0.5,), out=tmp_path / "heads")
    (report,) = train_all(replace(few, measures=Measures(nodes=(24,), checked=0, sampled=0)), lambda: Target.load(str(tiny_folder)), lambda text: None)
    points = [one for one in report.learning_curve if one.kind == "data"]
    assert len(points) == 2
    assert points[0].tokens < points[1].tokens
    assert (tmp_path / "heads" / "medusa" / "report.json").exists()


def test_what_is_wrong_is_said_before_anything_is_loaded(order, tmp_path):
    def load():
        raise AssertionError("the target was loaded")

    assert {"eagle", "medusa"} <= set(find_methods())
    assert "base" not in find_methods()
    with pytest.raises(BadInput, match="No training for 'nothing'"):
        train_all(replace(order, methods=("nothing",)), load)
    with pytest.raises(BadInput, match="nothing to train on"):
        train_all(replace(order, prompts=()), load)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Missing, match="no safetensors files"):
        train_all(replace(order, folder=tmp_path / "empty"), load)


def test_too_few_prompts_are_said(order, tmp_path, text_ids):
    (tmp_path / "records.jsonl").write_text(json.dumps({"ids": text_ids(16), "answer_start": 4}))
    few = replace(order, prompts=(), data=(tmp_path / "records.jsonl",), plan=replace(PLAN, held_out=0.0001))
    with pytest.raises(BadInput, match="None of the 1 records falls into the held-out"):
        train_all(few, lambda: None, lambda text: None)


def test_the_command(run, order, tiny_folder, tmp_path, monkeypatch):
    orders = []
    monkeypatch.setattr(pipeline, "train_all", lambda order, load, say: orders.append(order) or [])
    (tmp_path / "eval.json").write_text('{"quiz": 0.5}')
    words = ["--prompts", order.prompts[0], "--own", "3", "--methods", "eagle, medusa", "--plan", "epochs=3", "--knob", "eagle.unroll=4", "--eval-results"]
    done = run("train", "all", "--target", tiny_folder, *words, tmp_path / "eval.json", "--learning-curve")
    assert done.status == 0, done.err
    (made,) = orders
    assert (made.name, made.folder, made.own, made.methods) == (tiny_folder.name, tiny_folder.resolve(), 3, ("eagle", "medusa"))
    assert (made.plan.epochs, made.knobs, made.evaluation) == (3, {"eagle": {"unroll": 4}}, {"quiz": 0.5})
    assert made.shares == (0.125, 0.25, 0.5)
    assert made.heads == tmp_path / "models" / tiny_folder.name
    assert "METHOD.NAME=VALUE" in run("train", "all", "--target", tiny_folder, "--knob", "unroll=4").err
    assert "give it --prompts or --data" in run("train", "all", "--target", tiny_folder, "--features", tmp_path).err


def test_an_adapter_is_refused_with_the_way_to_merge_it(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match=r"LoRA adapter.*merge_and_unload"):
        sources.locate(str(tmp_path))


def test_a_hub_id_becomes_a_local_folder(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot(name, **options):
        asked.append((name, options["local_files_only"]))
        if name == "owner/lost":
            raise OSError("not there\nsecond line")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert sources.local_folder("owner/name") == tmp_path
    assert hub.cached("owner/name") == tmp_path
    assert hub.cached("owner/lost") is None
    with pytest.raises(Missing, match="'owner/lost' from the hub: not there"):
        sources.local_folder("owner/lost")
    assert asked == [("owner/name", False), ("owner/name", True), ("owner/lost", True), ("owner/lost", False)]


def test_probes_measure_and_say_it_roughly(tiny_target, text_ids):
    ticks = iter([0.0, 1.0, 4.0])
    # 4 rows: 1 s to begin, then 3 s for 4 tokens each: 2 s for the 12 that follow the first
    assert writing_seconds(tiny_target, Writing(batch=4, max_new_tokens=60), 8, lambda: next(ticks)) == pytest.approx(8 * (0.25 + 60 * 2 / 12))
    ticks = iter([0.0, 0.5])
    assert forward_speed(tiny_target, text_ids(30), lambda: next(ticks)) == pytest.approx(60.0)
    assert (in_words(0.2), in_words(40.4), in_words(600), in_words(9000)) == ("1 seconds", "40 seconds", "10 minutes", "2.5 hours")
