from __future__ import annotations

import math
import sys
import textwrap
from typing import Annotated

import pytest

from specviz import acceptance, drafters, shapes
from specviz.errors import BadInput
from specviz.registry import Bound, Knob, bind, discover, knobs, summary


def sample(
    growth: object,
    *,
    count: Annotated[int, Knob("Count", "How many.", 1, 8, 1)] = 3,
    share: Annotated[float, Knob("Share", minimum=0.0, maximum=1.0)] = 0.5,
    loud: Annotated[bool, Knob("Loud")] = False,
    mode: Annotated[str, Knob("Mode", choices=("a", "b"))] = "a",
    hidden: int = 9,
) -> tuple[object, ...]:
    """A sample of every kind of knob.

    More text.
    """
    return growth, count, share, loud, mode, hidden


def test_the_signature_is_the_spec():
    found = {knob.name: knob for knob in knobs(sample)}
    assert list(found) == ["count", "share", "loud", "mode"]  # a parameter without a Knob is no knob
    assert (found["count"].type, found["count"].default, found["count"].maximum) == (int, 3, 8)
    assert found["mode"].to_json()["choices"] == ["a", "b"]
    assert summary(sample) == "A sample of every kind of knob."


@pytest.mark.parametrize(
    ("name", "given", "parsed"),
    [
        ("count", "4", 4), ("count", 4.0, 4), ("share", "0.25", 0.25), ("share", 1, 1.0), ("mode", "b", "b"),
        ("loud", "yes", True), ("loud", "OFF", False), ("loud", True, True), ("loud", "0", False),
    ],
)  # fmt: skip
def test_values_become_the_knobs_type(name, given, parsed):
    knob = next(k for k in knobs(sample) if k.name == name)
    value = knob.parse(given)
    assert value == parsed
    assert type(value) is type(parsed)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("count", "0"), ("count", "9"), ("count", "2.5"), ("count", 2.5), ("count", "many"), ("count", None), ("count", True), ("count", math.inf), ("count", math.nan),
        ("share", "1.5"), ("share", -0.1), ("share", "nan"), ("share", math.inf), ("share", "x"), ("mode", "c"), ("loud", "maybe"), ("loud", ""),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_was_expected(name, given):
    knob = next(k for k in knobs(sample) if k.name == name)
    with pytest.raises(BadInput) as problem:
        knob.parse(given)
    assert name in str(problem.value)
    assert "Expected" in str(problem.value)


def test_a_knob_may_bring_a_check_of_its_own():
    def odd(value: int) -> None:
        if value % 2 == 0:
            raise BadInput(f"{value} is even")

    knob = Knob("Odd", name="odd", type=int, default=1, check=odd)
    assert knob.parse("3") == 3
    with pytest.raises(BadInput, match="4 is even"):
        knob.parse(4)


def test_offers_are_asked_for_each_time_and_rule_nothing_out():
    here = ["a"]
    knob = Knob("File", name="file", default="a", offers=lambda: here)
    assert knob.to_json()["offers"] == ["a"]
    here.append("b")
    assert knob.to_json()["offers"] == ["a", "b"]
    assert knob.to_json()["choices"] is None
    assert knob.parse("c") == "c"
    assert Knob("Plain", name="plain").to_json()["offers"] is None


def test_bind_fills_defaults_and_names_what_exists():
    bound = bind(acceptance, "typical", {"epsilon": "0.2"})
    assert bound.values == {"epsilon": 0.2, "delta": 0.3, "bonus": "sampled"}
    assert bound.to_json() == {"name": "typical", "knobs": bound.values}
    with pytest.raises(BadInput, match=r"No 'typicl' in acceptance.*greedy, rejection, typical"):
        bind(acceptance, "typicl")
    with pytest.raises(BadInput, match=r"no knob 'eps'.*epsilon, delta, bonus"):
        bind(acceptance, "typical", {"eps": 1})
    with pytest.raises(BadInput, match=r"widths='3-²'"):
        bind(shapes, "cartesian", {"widths": "3-²"})


def test_a_bound_object_is_called_with_its_values():
    assert Bound("sample", sample, {"count": 5})("growth") == ("growth", 5, 0.5, False, "a", 9)


def test_the_registries_hold_what_this_version_promises():
    assert {"autoregressive", "prompt_lookup"} <= set(discover(drafters))
    assert set(discover(acceptance)) >= {"greedy", "rejection", "typical"}
    assert set(discover(shapes)) >= {"chain", "cartesian", "dynamic", "eagle_25", "medusa_63"}


def test_one_file_is_enough_and_helpers_are_not_found(tmp_path, monkeypatch):
    package = tmp_path / "made_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text("def base(): ...\n")
    (package / "_hidden.py").write_text("def _hidden(): ...\n")
    (package / "helper.py").write_text("def other(): ...\n")
    (package / "two_words.py").write_text("class TwoWords: ...\n")
    (package / "borrowed.py").write_text("from made_for_a_test.two_words import TwoWords as Borrowed\n")
    (package / "single.py").write_text(
        textwrap.dedent('''
        def single():
            """One."""
    ''')
    )
    monkeypatch.syspath_prepend(tmp_path)
    import made_for_a_test

    assert list(discover(made_for_a_test)) == ["single", "two_words"]
    for name in [name for name in sys.modules if name.startswith("made_for_a_test")]:
        monkeypatch.delitem(sys.modules, name)
