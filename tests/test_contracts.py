"""What every drafter, rule, shape and plot keeps to. A new file is tested here before its author writes a test."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest
import torch
from trees import Scripted, evidence_of

from specviz import acceptance, drafters, plots, shapes
from specviz.acceptance.base import VERDICTS, Verdict, is_greedy_only, is_lossless, verdict_column
from specviz.build import build_drafter, build_rule, build_shape, parse_spec
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter
from specviz.errors import BadInput, Missing
from specviz.events import Finished, Verified
from specviz.registry import bind, discover, knobs, summary
from specviz.sampling import Sampling
from specviz.tree import Draw, TokenTree

PACKAGES: list[ModuleType] = [drafters, acceptance, shapes, plots]
EVERYTHING = [(package, name) for package in PACKAGES for name in discover(package)]
DRAFTERS, RULES = list(discover(drafters)), list(discover(acceptance))
WIDTH = 60  # characters that a list can show of a knob's label


def named(value: object) -> str:
    return value.__name__.rsplit(".", 1)[-1] if isinstance(value, ModuleType) else str(value)


@pytest.mark.parametrize(("package", "name"), EVERYTHING, ids=named)
def test_it_says_in_one_sentence_what_it_is(package, name):
    line = summary(discover(package)[name])
    assert line.endswith((".", ")")), f"{name}: the docstring's first line must be a sentence, got {line!r}"
    assert 10 < len(line) < 200


@pytest.mark.parametrize(("package", "name"), EVERYTHING, ids=named)
def test_its_knobs_are_labelled_and_their_defaults_fit(package, name):
    for knob in knobs(discover(package)[name]):
        assert knob.label, f"{name}.{knob.name} has no label"
        assert len(knob.label) < WIDTH
        assert knob.type in (int, float, bool, str), f"{name}.{knob.name} is of type {knob.type}"
        assert knob.default is not inspect.Parameter.empty, f"{name}.{knob.name} has no default"
        assert knob.parse(knob.default) == knob.default
        assert knob.parse(str(knob.default)) == knob.default, "the command line gives text"
        assert knob.to_json()["name"] == knob.name


@pytest.mark.parametrize(("package", "name"), EVERYTHING, ids=named)
def test_its_file_bears_its_name(package, name):
    thing = discover(package)[name]
    assert thing.__module__ == f"{package.__name__}.{name}"
    assert thing.__name__ in (name, "".join(part.capitalize() for part in name.split("_")))


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_is_one_and_names_its_shape(name):
    cls = discover(drafters)[name]
    assert issubclass(cls, Drafter)
    assert inspect.isgeneratorfunction(cls.draft)
    takes = "shape" in inspect.signature(cls.__init__).parameters
    assert takes == (cls.default_shape is not None)
    if takes:
        shape = build_shape(parse_spec(name), cls)
        assert shape.name == cls.default_shape
        assert shape.values.items() >= cls.default_knobs.items()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_whether_it_is_lossless(name):
    module = importlib.import_module(f"specviz.acceptance.{name}")
    assert isinstance(module.lossless, bool)
    assert isinstance(module.greedy_only, bool)
    line = summary(discover(acceptance)[name]) + (discover(acceptance)[name].__doc__ or "")
    assert ("lossless" if module.lossless else "lossy") in line.lower(), "the description must say so"


TREE = TokenTree((0, 1, 2, 3, 1, 2), (-1, 0, 0, 1, 1, 2))
ROWS = {0: [0.1, 0.4, 0.3, 0.2], 1: [0.25, 0.25, 0.25, 0.25], 2: [0.7, 0.1, 0.1, 0.1]}


class Half(Scripted):
    def __call__(self, position: int, purpose: str, index: int = 0) -> float:
        return 0.5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_judges_every_node_and_decides_nothing_by_chance(name, drawn, temperature):
    draws = (Draw(0, (1, 2), torch.full((4,), 0.25, dtype=torch.float64)),) if drawn else ()
    tree = TokenTree(TREE.tokens, TREE.parents, draws=draws)
    rule = build_rule(name)

    def judge() -> Verdict:
        evidence = evidence_of(tree, ROWS, temperature)
        evidence.uniform = Half({})
        return rule(tree, evidence)

    if is_greedy_only(rule) and temperature > 0:
        with pytest.raises(BadInput, match="temperature 0"):
            judge()
        return
    verdict = judge()
    assert verdict == judge()
    assert 0 <= verdict.next_token < 4
    assert all(tree.parents[node] == (0, *verdict.path)[i] for i, node in enumerate(verdict.path)), "the path is no path"
    column = verdict_column(tree, verdict)
    assert set(column) <= set(VERDICTS)
    assert {node for node in range(1, len(tree)) if column[node] == "accepted"} == set(verdict.path)
    assert len({test.node for test in verdict.tests}) == len(verdict.tests), "a node was tested twice"
    if temperature == 0 and is_lossless(rule):
        assert (verdict.path, verdict.next_token) == ((1,), 0)


def drafter_for(name: str, target, heads) -> Drafter:
    spec = parse_spec(name)
    if discover(drafters)[name].learned:
        spec = parse_spec(f"{name}:checkpoint={heads(name)}")
    return build_drafter(target, spec)


def text(events) -> tuple[int, ...]:
    return next(e.tokens for e in events if isinstance(e, Finished))


def decoded(target, drafter, rule, ids, sampling, n=24):
    return list(decode(target, drafter, rule, [Request(tuple(ids))], sampling=sampling, max_new_tokens=n))


@pytest.mark.parametrize("rule", [name for name in RULES if is_lossless(discover(acceptance)[name])])
@pytest.mark.parametrize("name", DRAFTERS)
def test_at_temperature_zero_every_drafter_gives_plain_greedy_text(tiny_target, random_heads, name, rule):
    drafter = drafter_for(name, tiny_target, random_heads)
    for prompt in ("one two three one two three one two", "a"):
        ids = tiny_target.encode(prompt)
        expected = text(decoded(tiny_target, build_drafter(tiny_target, parse_spec("autoregressive")), build_rule("greedy"), ids, Sampling()))
        events = decoded(tiny_target, drafter, build_rule(rule), ids, Sampling())
        assert text(events) == expected
        assert all(e.verdicts for e in events if isinstance(e, Verified))


@pytest.mark.parametrize("shape", list(discover(shapes)))
@pytest.mark.parametrize("name", [name for name in DRAFTERS if discover(drafters)[name].default_shape])
def test_every_shape_fits_every_drafter_that_has_one(tiny_target, random_heads, name, shape):
    drafter = build_drafter(tiny_target, parse_spec(f"{name}@{shape}:checkpoint={random_heads(name)}"))
    ids, rule = tiny_target.encode("one two one two"), build_rule("rejection")
    plain = build_drafter(tiny_target, parse_spec("autoregressive"))
    for sampling in (Sampling(), Sampling(0.8, top_p=0.9, seed=3)):
        expected = text(decoded(tiny_target, plain, rule, ids, sampling, 12))
        assert text(decoded(tiny_target, drafter, rule, ids, sampling, 12)) == expected


@pytest.mark.parametrize("name", DRAFTERS)
def test_rows_of_a_batch_get_their_own_drafts(tiny_target, random_heads, name):
    drafter, rule = drafter_for(name, tiny_target, random_heads), build_rule("rejection")
    prompts = [tuple(tiny_target.encode(prompt)) for prompt in ("to be or not to be", "x")]
    alone = [text(decoded(tiny_target, drafter, rule, ids, Sampling(), 14)) for ids in prompts]
    events = list(decode(tiny_target, drafter, rule, [Request(ids) for ids in prompts], sampling=Sampling(), max_new_tokens=14))
    assert [next(e.tokens for e in events if isinstance(e, Finished) and e.row == row) for row in range(2)] == alone


@pytest.mark.parametrize("name", [name for name in DRAFTERS if discover(drafters)[name].learned])
def test_a_learned_drafter_without_a_checkpoint_says_so(tiny_target, tmp_path, name):
    with pytest.raises(Missing, match=tmp_path.name):
        build_drafter(tiny_target, parse_spec(f"{name}:checkpoint={tmp_path}"))


@pytest.mark.parametrize("name", list(discover(shapes)))
def test_a_shape_takes_a_growth_and_knobs_only(name):
    positional = [p for p in inspect.signature(discover(shapes)[name]).parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert [p.name for p in positional] == ["growth"]
    bind(shapes, name)
