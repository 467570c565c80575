from __future__ import annotations

from typing import Annotated

import pytest

from specviz.acceptance.base import is_greedy_only, is_lossless
from specviz.build import Spec, build_drafter, build_rule, build_shape, parse_spec, split_specs
from specviz.drafters.base import Drafter
from specviz.errors import BadInput
from specviz.registry import Knob


class Shaped(Drafter):
    """A drafter with a tree shape, for these tests."""

    default_shape = "dynamic"
    default_knobs = {"nodes": 10}

    def __init__(self, target, *, shape, beam: Annotated[int, Knob("Beam")] = 1):
        super().__init__(target)
        self.shape, self.beam = shape, beam

    def draft(self, seen):
        yield []


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("autoregressive", Spec("autoregressive")),
        (" prompt_lookup:ngram=2, length=5 ", Spec("prompt_lookup", None, {"ngram": "2", "length": "5"})),
        ("prompt_lookup:", Spec("prompt_lookup")),
    ],
)
def test_spec_strings(text, spec):
    assert parse_spec(text) == spec
    assert parse_spec(str(spec)) == spec


def test_a_knob_of_the_shape_goes_to_the_shape(monkeypatch):
    monkeypatch.setattr("specviz.build.discover", lambda package, real=parse_spec.__globals__["discover"]: {**real(package), "shaped": Shaped})
    assert parse_spec("shaped@dynamic:nodes=12,beam=2") == Spec("shaped", "dynamic", {"beam": "2"}, {"nodes": "12"})
    assert parse_spec("shaped:depth=2") == Spec("shaped", None, {}, {"depth": "2"})
    assert str(parse_spec("shaped@chain:depth=3")) == "shaped@chain:depth=3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("nothing", "No drafter 'nothing'"), ("", "No drafter ''"), ("autoregressive@star", "No shape 'star'"), ("prompt_lookup:ngram", "not knob=value")],
)
def test_a_bad_spec_string_names_itself(text, expected):
    with pytest.raises(BadInput, match=expected):
        parse_spec(text)


def test_a_list_of_specs_is_split_at_the_right_commas():
    assert split_specs("a, b@shape:x=1,y=2,c:z=3,") == ["a", "b@shape:x=1,y=2", "c:z=3"]
    assert split_specs("") == []


def test_build_drafter_records_name_and_knobs(tiny_target):
    made = build_drafter(tiny_target, parse_spec("prompt_lookup:length=4"))
    assert (made.name, made.length, made.ngram) == ("prompt_lookup", 4, 3)
    assert made.spec == {"knobs": {"ngram": 3, "length": 4, "pause": 8}, "shape": None}
    with pytest.raises(BadInput, match=r"ngram='99' is out of range.*1 to 8"):
        build_drafter(tiny_target, parse_spec("prompt_lookup:ngram=99"))
    with pytest.raises(BadInput, match="no tree shape"):
        build_drafter(tiny_target, parse_spec("prompt_lookup@chain"))


def test_the_default_shape_brings_the_drafters_own_defaults():
    assert build_shape(Spec("shaped"), Shaped).values.items() >= {"nodes": 10, "depth": 5, "top_k": 8}.items()
    assert build_shape(Spec("shaped", "dynamic", shape_knobs={"nodes": "30"}), Shaped).values["nodes"] == 30
    assert build_shape(Spec("shaped", "chain"), Shaped).values == {"depth": 4}
    # a shape that is named means the same for every drafter
    assert build_shape(Spec("shaped", "dynamic"), Shaped).values["nodes"] == 24
    assert build_shape(Spec("shaped", None, shape_knobs={"depth": "2"}), Shaped).values.items() >= {"nodes": 24, "depth": 2}.items()


def test_a_misspelt_knob_is_answered_with_all_that_fit(monkeypatch, tiny_target):
    real = parse_spec.__globals__["discover"]
    everything = lambda package: {**real(package), "shaped": Shaped} if package.__name__.endswith("drafters") else real(package)
    monkeypatch.setattr("specviz.build.discover", everything)
    with pytest.raises(BadInput, match=r"'nodez'.*nodes, depth, top_k"):
        parse_spec("shaped@dynamic:nodez=3")


def test_rules_say_what_they_keep():
    rules = {name: build_rule(name) for name in ("greedy", "rejection", "typical")}
    assert {name: is_lossless(rule) for name, rule in rules.items()} == {"greedy": True, "rejection": True, "typical": False}
    assert {name: is_greedy_only(rule) for name, rule in rules.items()} == {"greedy": True, "rejection": False, "typical": False}
    assert is_lossless(rules["greedy"].thing)
