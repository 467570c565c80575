"""nodes=auto from spec to trace: what is asked, what is chosen, what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_costs import costs, profile, reported_head
from recorded import run_tiny

from specviz.analysis.profile import Profile
from specviz.build import Spec, build_drafter, build_shape, check_spec, parse_spec
from specviz.drafters.base import Drafter
from specviz.drafters.eagle import Eagle
from specviz.errors import BadInput
from specviz.profiling import budget
from specviz.shapes.dynamic import fitting
from specviz.target import Target

FREE = profile({1: 30.0, 64: 30.0})  # nodes cost nothing
DEAR = profile({1: 30.0, 8: 300.0, 64: 3000.0})  # every tree is slower


@pytest.fixture
def head(tiny_target: Target, random_heads: Callable[[str], Path], tmp_path: Path) -> Path:
    return reported_head(tmp_path / "eagle", random_heads("eagle"), tiny_target, {4: 1.5, 16: 2.0, 32: 2.1})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Profile], None]:
    """Sets what this machine costs."""

    def be(made: Profile) -> None:
        monkeypatch.setattr(budget, "costs_here", lambda target, drafter, sampled, say: (made, costs({1: 0.1, 4: 0.1, 32: 0.1})))

    return be


def built(target: Target, head: Path, knobs: str = "", **options: object) -> Drafter:
    return build_drafter(target, parse_spec(f"eagle{knobs}{',' if ':' in knobs else ':'}checkpoint={head}"), **options)  # type: ignore[arg-type]


def test_depth_and_width_follow_the_nodes() -> None:
    def sizes(nodes: int, **options: bool) -> tuple[float, ...]:
        return tuple(fitting(nodes, **options).values())

    assert [sizes(nodes, wide=True) for nodes in (8, 16, 24, 64)] == [(3, 6, 0.0), (4, 12, 0.0), (5, 16, 0.0), (6, 24, 0.0)]
    assert [sizes(nodes)[:2] for nodes in (2, 8, 9, 16, 17, 32, 33, 128, 256)] == [(3, 4)] * 2 + [(4, 6)] * 2 + [(5, 8)] * 2 + [(6, 10)] * 3
    assert [sizes(nodes, stops=True) for nodes in (6, 12, 64)] == [(5, 4, 0.2), (5, 6, 0.2), (6, 10, 0.2)]


@pytest.mark.parametrize(("knobs", "wide", "ahead", "depth", "stop_below"), [
    ("nodes=auto", False, False, 5, 0.2),
    ("nodes=auto", True, False, 3, 0.0),
    ("nodes=auto", False, True, 3, 0.0),
    ("nodes=auto,stop_below=0", False, False, 3, 0.0),
    ("nodes=auto,depth=2", False, False, 2, 0.2),
    ("nodes=8,depth=auto", False, False, 3, 0.0),
])  # fmt: skip
def test_a_tree_stops_by_itself_where_a_draft_step_takes_time(
    tiny_target: Target, head: Path, machine: Callable[[Profile], None], monkeypatch: pytest.MonkeyPatch,
    knobs: str, wide: bool, ahead: bool, depth: int, stop_below: float,
) -> None:  # fmt: skip
    machine(profile({1: 1.0, 4: 1.0, 32: 40.0}))
    monkeypatch.setattr(Eagle, "wide", wide)
    monkeypatch.setattr(Target, "runs_ahead", ahead)
    values = built(tiny_target, head, f"@dynamic:{knobs}").spec["shape"]["knobs"]
    assert (values["nodes"] <= 8, values["depth"], values["stop_below"]) == (True, depth, stop_below)


def test_auto_in_a_spec_covers_what_is_not_given() -> None:
    assert build_shape(Spec("eagle", "dynamic", {}, {"nodes": "auto"}), Eagle).values == {
        "nodes": "auto", "depth": "auto", "top_k": "auto", "stop_below": "auto", "show_pruned": 32,
    }  # fmt: skip
    assert build_shape(Spec("eagle", "dynamic", {}, {"nodes": "auto", "depth": "2"}), Eagle).values["depth"] == 2
    assert build_shape(Spec("eagle", "dynamic", {}, {"nodes": "12"}), Eagle).values["depth"] == 5
    assert str(check_spec(parse_spec("eagle@dynamic:nodes=auto"))) == "eagle@dynamic:nodes=auto"
    with pytest.raises(BadInput, match="or auto"):
        check_spec(parse_spec("eagle@dynamic:nodes=many"))
    with pytest.raises(BadInput, match="depth='auto'"):
        check_spec(parse_spec("eagle@chain:depth=auto"))


def test_the_choice_is_built_and_recorded_with_its_curve(tiny_target: Target, head: Path, machine: Callable[[Profile], None]) -> None:
    machine(FREE)
    said: list[str] = []
    drafter = built(tiny_target, head, "@dynamic:nodes=auto", say=said.append)
    told = drafter.spec["shape"]["knobs"]
    assert {name: told[name] for name in ("nodes", "depth", "top_k")} == {"nodes": 32, "depth": 5, "top_k": 8}
    assert said == ["nodes=auto -> 32 (modelled 2.1x here)"] or said[0].startswith("nodes=auto -> 32 (modelled 2.")
    record = run_tiny(tiny_target, drafter, new=6).started().meta["drafter"]["budget"]
    assert (record["asked"], record["nodes"]) == ("auto", 32)
    assert [(one["nodes"], one["tau"]) for one in record["curve"]] == [(4, 1.5), (16, 2.0), (32, 2.1)]


def test_a_bare_name_is_auto_once_its_head_has_a_report(tiny_target: Target, head: Path, machine: Callable[[Profile], None]) -> None:
    machine(FREE)
    assert built(tiny_target, head).spec["budget"]["nodes"] == 32
    assert "budget" not in built(tiny_target, head, "@dynamic").spec
    (head / "report.json").unlink()
    bare = built(tiny_target, head)
    assert "budget" not in bare.spec
    assert bare.spec["shape"]["knobs"]["nodes"] == Eagle.default_knobs["nodes"]


def test_given_depth_stays_and_auto_depth_fits_given_nodes(tiny_target: Target, head: Path, machine: Callable[[Profile], None]) -> None:
    machine(FREE)
    assert built(tiny_target, head, "@dynamic:nodes=auto,depth=2").spec["shape"]["knobs"]["depth"] == 2
    knobs = built(tiny_target, head, "@dynamic:nodes=12,depth=auto,top_k=3").spec["shape"]["knobs"]
    assert (knobs["nodes"], knobs["depth"], knobs["top_k"]) == (12, 4, 3)


def test_where_no_tree_pays_it_is_plain_decoding_that_runs_and_says_who_was_asked(tiny_target: Target, head: Path, machine: Callable[[Profile], None]) -> None:
    machine(DEAR)
    drafter = built(tiny_target, head, "@dynamic:nodes=auto")
    assert drafter.name == "autoregressive"
    trace = run_tiny(tiny_target, drafter, new=5)
    told = trace.started().meta["drafter"]
    assert told["name"] == "autoregressive"
    assert told["asked"].startswith("eagle@dynamic:")
    assert told["budget"]["nodes"] == 1
    assert all(len(one.drafted.tokens) == 1 for one in trace.rounds())


def test_without_a_report_the_drafter_s_default_is_taken_and_said(tiny_target: Target, head: Path) -> None:
    (head / "report.json").unlink()
    said: list[str] = []
    drafter = built(tiny_target, head, "@dynamic:nodes=auto", say=said.append)
    assert drafter.spec["shape"]["knobs"]["nodes"] == Eagle.default_knobs["nodes"]
    assert "no report" in said[-1]
    assert "default is used" in drafter.spec["budget"]["why"]


def test_the_temperature_of_the_run_decides_too(
    tiny_target: Target, random_heads: Callable[[str], Path], tmp_path: Path, machine: Callable[[Profile], None]
) -> None:
    from specviz.analysis.head_report import Sampled

    cold = (Sampled(1.0, "eagle@dynamic:nodes=24", 16, 8, 1.05, (), ()),)
    head = reported_head(tmp_path / "hot", random_heads("eagle"), tiny_target, {4: 1.5, 16: 2.0}, sampled=cold)
    machine(profile({1: 30.0, 4: 33.0, 16: 40.0}))
    assert built(tiny_target, head).spec["budget"]["nodes"] == 16
    assert built(tiny_target, head, temperature=1.0).name == "autoregressive"
