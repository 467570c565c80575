"""The report of a head: measured off line on fixed text, checked by decoding, written beside the head."""

from __future__ import annotations

import json

import pytest
import torch

from specviz.analysis.head_report import load_report
from specviz.build import parse_spec
from specviz.errors import BadFile, BadInput, Missing
from specviz.target import Target
from specviz.training.card import HeldOut, read_evaluation, save_report, write_card
from specviz.training.features import capture
from specviz.training.fit import Plan, fit
from specviz.training.fixed_text import Question, fixed_text, keep_states
from specviz.training.report import Measures, head_report, held_out_replay, load_head_drafter, specs_of, spread

QUIET = {"say": lambda text: None}
PLAN = Plan(epochs=2, tokens=96, draft_vocab=64, precision="fp32", warm_up=2, measure_every=3, save_every=100, held_out=0.3)
LIMIT = 24


@pytest.fixture(scope="module")
def target(tiny_folder):
    return Target.load(str(tiny_folder))


@pytest.fixture(scope="module")
def text(target, text_ids, tmp_path_factory):
    questions = [Question(text_ids(8 + n, seed=n), ("chat", "code")[n % 2]) for n in range(6)]
    return fixed_text(target, questions, "made.jsonl", max_new_tokens=LIMIT, out=tmp_path_factory.mktemp("text"), **QUIET)


@pytest.fixture(scope="module")
def trained(target, tiny_folder, text_ids, tmp_path_factory):
    """The folder of a trained head, with its features and its run folder."""
    place = tmp_path_factory.mktemp("trained")
    lines = [{"ids": text_ids(14 + n % 9, seed=n), "answer_start": 4 + n % 3} for n in range(20)]
    (place / "records.jsonl").write_text("\n".join(map(json.dumps, lines)))
    features = capture([place / "records.jsonl"], place / "features", target=str(tiny_folder), shards=2, **QUIET)
    fit("eagle", features.folder, target=str(tiny_folder), out=place / "tiny" / "eagle", run=place / "run", plan=PLAN, knobs={"unroll": 2}, **QUIET)
    return place


def spec_of(trained, more=""):
    return parse_spec(f"eagle{more}{',' if ':' in more else ':'}checkpoint={trained / 'tiny' / 'eagle'}")


def test_the_text_is_written_once_and_its_states_are_those_of_the_prefill(text, target):
    told = []
    keep_states(target, text, (1, 3), **QUIET)
    again = fixed_text(target, [Question(one.question, "other") for one in text.answers], "x", max_new_tokens=LIMIT, out=text.folder.parent, say=told.append)
    assert [one.ids for one in again.answers] == [one.ids for one in text.answers]
    assert "is in" in told[0]
    assert {one.category for one in again.answers} == {"other"}
    keep_states(target, again, (1, 3), say=told.append)
    assert len(told) == 1  # nothing was missing
    one = text.answers[2]
    hidden = target.prefill(one.ids, target.new_cache(1, len(one.ids)), 0, (1, 3)).hidden
    assert all(torch.equal(text.states(2, (1, 3))[tap], hidden[tap][0]) for tap in (1, 3))
    with torch.inference_mode():
        logits = target.model(input_ids=torch.tensor([one.ids]), use_cache=False).logits[0]
    assert tuple(logits.argmax(-1).tolist()[one.prompt - 1 : -1]) == one.answer
    with pytest.raises(BadInput, match="no prompts"):
        fixed_text(target, [], "x", max_new_tokens=4, out=text.folder, **QUIET)


def test_every_shape_that_fits_is_measured():
    specs = {str(spec) for spec in specs_of(parse_spec("eagle"), (4, 24))}
    assert {"eagle@chain", "eagle@eagle_25", "eagle@medusa_63"} <= specs
    assert sum("dynamic" in spec for spec in specs) == 2


def test_the_full_report(trained, text, target, tmp_path):
    told = []
    measures = Measures(nodes=(4, 24), checked=3, sampled=2, temperatures=(0.7,))
    report = head_report(target, spec_of(trained), text, measures=measures, fit=trained / "run", evaluation={"quiz": 0.5}, say=told.append)
    assert report.main.spec == "eagle@dynamic:nodes=24"
    assert {one.shape for one in report.greedy} >= {"chain", "eagle_25", "dynamic"}
    assert all(str(trained) not in one.spec for one in report.greedy)
    assert report.grown(4).nodes == 4
    assert report.main.categories.keys() == {"chat", "code"}
    assert sum(report.main.reached) > 0
    assert report.checked.prompts == 3
    assert report.checked.off_line == pytest.approx(report.checked.decoded, rel=0.02)
    assert [(one.temperature, one.nodes, one.prompts) for one in report.sampled] == [(0.7, 24, 2)]
    answers = [token for one in text.answers for token in one.answer]
    known = set(load_head_drafter(target, spec_of(trained)).rows.vocabulary.tolist())
    assert (report.misses.tokens, report.misses.outside) == (len(answers), sum(token not in known for token in answers))
    assert sum(one.count for one in report.calibration) > 0
    assert report.loss[0].step == 1
    assert report.held_out
    assert {one.kind for one in report.learning_curve} == {"training"}
    save_report(report, tmp_path)
    assert load_report(tmp_path) == report
    card = write_card(trained / "tiny" / "eagle", tmp_path).read_text()
    for number in (f"{report.main.tau:.3f}", f"{report.checked.decoded:.3f} decoded", "| quiz | 0.5 |", target.fingerprint.weights, "Loss "):
        assert number in card


def test_parts_can_be_left_out(trained, text, target, tmp_path):
    report = head_report(target, spec_of(trained, "@chain"), text, measures=Measures(checked=0, sampled=0), **QUIET)
    assert [one.spec for one in report.greedy] == ["eagle@chain"]
    assert (report.checked, report.sampled, report.loss, report.evaluation) == (None, (), (), None)
    save_report(report, tmp_path)
    assert "Not measured." in write_card(trained / "tiny" / "eagle", tmp_path).read_text()


def test_held_out_answers_are_replayed(trained, target, tmp_path):
    features = next((trained / "features").iterdir())
    drafter = load_head_drafter(target, spec_of(trained, "@chain"))
    found = held_out_replay(drafter, [features])
    few = held_out_replay(drafter, [features], limit=1)
    assert 0 < few.rounds < found.rounds
    held = HeldOut(trained / "tiny" / "eagle", "eagle@chain", found)
    assert f"tau {found.tau:.3f}" in write_card(held.head, held_out=held, measured=["a line of bench"]).read_text()


def test_what_cannot_be_reported(target, text):
    with pytest.raises(BadInput, match="has no trained head"):
        head_report(target, parse_spec("prompt_lookup"), text, **QUIET)
    with pytest.raises(Missing, match="No eagle head"):
        head_report(target, parse_spec("eagle:checkpoint=nowhere"), text, **QUIET)


def test_prompts_are_spread_over_the_file():
    assert spread(80, 10) == [0, 8, 16, 24, 32, 40, 48, 56, 64, 72]
    assert spread(3, 10) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"), [("[1]", "no JSON object"), ('{"a": "b"}', "'a' is 'b', expected a number"), ("{", "cannot be read"), ("{}", "no JSON object")]
)
def test_evaluation_results_are_checked(text, message, tmp_path):
    (tmp_path / "eval.json").write_text(text)
    with pytest.raises(BadFile, match=message):
        read_evaluation(tmp_path / "eval.json")
    (tmp_path / "eval.json").write_text('{"mmlu": 0.31, "n": 3}')
    assert read_evaluation(tmp_path / "eval.json") == {"mmlu": 0.31, "n": 3.0}
