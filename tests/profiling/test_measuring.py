"""Measuring on the tiny target: what is measured and how it is remembered, never how long it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from made_costs import reported_head

from specviz.analysis.profile_file import profile_path, read_profile
from specviz.build import build_drafter, load_drafter, parse_spec
from specviz.graphs import draft as drafting
from specviz.profiling import forward, measure
from specviz.profiling.budget import must_measure, usable_report
from specviz.profiling.forward import forward_costs
from specviz.profiling.machine import count_weights, sizes_of
from specviz.profiling.measure import Plan, costs_here, quick_profile, with_drafters
from specviz.profiling.rounds import Rotation, checkpoint_of, drafter_costs
from specviz.record import describe_setting
from specviz.shapes.dynamic import STOPPED_DEPTH
from specviz.target import Target

SMALL = Plan(sizes=(1, 4, 8), batches=(1, 2), batch_sizes=(1, 4), budgets=(4, 8), cached=16, repeats=2)
Heads = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measure, "QUICK", replace(SMALL, batches=(), batch_sizes=(), quick=True))
    monkeypatch.setattr("specviz.profiling.machine.COPY_BYTES", {"cpu": 1 << 16})
    monkeypatch.setattr("specviz.profiling.machine.PRODUCT", {"cpu": 32})


def loaded(target: Target, folder: Path) -> Any:
    return load_drafter(target, parse_spec(f"eagle:checkpoint={folder}"))


def test_sizes_take_turns_and_the_first_round_does_not_count(tiny_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = Target.forward
    monkeypatch.setattr(Target, "forward", lambda self, trees, *rest: seen.append(len(trees[0])) or real(self, trees, *rest))
    found = forward_costs(tiny_target, (4, 1, 8), repeats=2, cached=16)
    assert seen == [1, 4, 8, 4, 8, 1, 8, 1, 4]
    assert {nodes: spread.count for nodes, spread in found.items()} == {1: 2, 4: 2, 8: 2}
    assert all(0 < spread.low <= spread.median <= spread.high for spread in found.values())


def test_a_slow_machine_is_not_measured_for_ever(tiny_target: Target) -> None:
    assert forward_costs(tiny_target, (1,), repeats=50, cached=4, patience=0.0)[1].count == forward.LEAST


def test_a_rotation_gives_every_budget_its_turn(tiny_target: Target, random_heads: Heads) -> None:
    drafter = loaded(tiny_target, random_heads("eagle"))
    found = drafter_costs(tiny_target, drafter, (4, 8), repeats=2)
    assert set(found.rounds) == {1, 4, 8}
    assert {nodes: one.nodes for nodes, one in found.rounds.items()} == {1: 1.0, 4: 4.0, 8: 8.0}
    assert all(one.count >= 2 for one in found.rounds.values())
    assert 1.0 <= found.rounds[8].steps <= STOPPED_DEPTH  # the depth that suits 8 nodes
    assert found.rounds[8].drafted >= found.rounds[8].steps
    assert found.checkpoint == checkpoint_of(drafter)
    assert found.weights > 0
    assert not isinstance(drafter.shape, Rotation)  # the drafter that was given stays as it was


def test_a_rotation_of_drafts_by_replay(tiny_target: Target, random_heads: Heads) -> None:
    """Where drafting is replayed, that is what is measured, for every budget."""
    target = Target(tiny_target.model, tiny_target.tokenizer, tiny_target.name, tiny_target.fingerprint)
    target.use_graphs()
    drafter = loaded(target, random_heads("eagle"))
    drafter.grow = lambda *given: pytest.fail("a tree was grown step by step")  # type: ignore[method-assign,attr-defined]
    found = drafter_costs(target, drafter, (4, 8), repeats=2)
    assert {nodes: one.nodes for nodes, one in found.rounds.items()} == {1: 1.0, 4: 4.0, 8: 8.0}
    assert (found.rounds[8].steps, found.rounds[8].drafted) == (3.0, 9.0)  # every step in full width: the root, 4 and 4


def test_a_capture_is_never_charged_to_a_draft(tiny_target: Target, random_heads: Heads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form but the first is captured while its first round drafts, and again where the text comes to another view."""
    target = Target(tiny_target.model, tiny_target.tokenizer, tiny_target.name, tiny_target.fingerprint)
    target.use_graphs()
    drafter, real, slow = loaded(target, random_heads("eagle")), drafting.capture, 1.5  # seconds: far beyond what a busy machine makes of a draft
    monkeypatch.setattr(drafting, "capture", lambda *given, **named: sleep(slow) or real(*given, **named))
    found = drafter_costs(target, drafter, (4, 8), repeats=2)
    assert drafter.graphs.late >= 2
    assert min(one.count for one in found.rounds.values()) >= 2
    assert max(one.ms["draft"].high for one in found.rounds.values()) < 1000 * slow


def test_a_drafter_without_a_budget_has_one_entry(tiny_target: Target) -> None:
    found = drafter_costs(tiny_target, build_drafter(tiny_target, parse_spec("prompt_lookup")), (4, 8), repeats=2)
    assert (set(found.rounds), found.checkpoint, found.step_ms) == ({0}, None, None)


def test_a_full_profile_has_the_floor_of_every_phase(tiny_target: Target, random_heads: Heads) -> None:
    ticks: list[int] = []
    made = measure.measure(tiny_target, SMALL, lambda: ticks.append(1))
    made = with_drafters(made, tiny_target, [loaded(tiny_target, random_heads("eagle"))], SMALL)
    assert len(ticks) == SMALL.steps
    assert (set(made.forward), set(made.batch), set(made.batch[2])) == ({1, 4, 8}, {1, 2}, {1, 4})
    assert made.floor["forward"]["8"]["flops"] > made.floor["forward"]["1"]["flops"]
    assert made.floor["forward"]["1"]["gap"] == pytest.approx(made.forward[1].median / made.floor["forward"]["1"]["floor_ms"])
    assert {"draft", "verify"} == made.floor["drafters"]["eagle"]["8"].keys()
    assert made.machine["bandwidth_bytes_per_s"] > 0


def test_weights_are_counted_alike_with_packed_layers(make_target: Callable[..., Target]) -> None:
    from specviz.packed import pack_linears, packable

    target = make_target(seed=5)
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96
    assert count_weights(target.model) == sizes_of(target).weights == 3 * layer + 320 * 64
    if packable(target.model) is None:
        pack_linears(target.model)
        assert count_weights(target.model) == 3 * layer + 320 * 64
    assert count_weights(torch.nn.Embedding(5, 5)) == 0


def test_the_quick_profile_is_measured_once_and_remembered(tiny_target: Target) -> None:
    said: list[str] = []
    first = quick_profile(tiny_target, said.append)
    assert "once" in said[0]
    assert quick_profile(tiny_target, said.append) == first
    assert len(said) == 1
    assert read_profile(describe_setting(tiny_target)) == first


def test_a_damaged_profile_is_measured_again_and_said(tiny_target: Target) -> None:
    quick_profile(tiny_target)
    path = profile_path(describe_setting(tiny_target))
    path.write_text("{")
    said: list[str] = []
    assert quick_profile(tiny_target, said.append) == read_profile(describe_setting(tiny_target))
    assert "damaged" in said[0]
    assert "measured again" in said[0]


def test_a_drafter_is_added_once_and_again_for_another_checkpoint(tiny_target: Target, random_heads: Heads, tmp_path: Path) -> None:
    head = reported_head(tmp_path / "head", random_heads("eagle"), tiny_target, {4: 1.5})
    said: list[str] = []
    profile, costs = costs_here(tiny_target, loaded(tiny_target, head), False, said.append)
    assert profile.drafters["eagle"] == costs
    again = len(said)
    assert costs_here(tiny_target, loaded(tiny_target, head), False, said.append)[1] == costs
    assert len(said) == again
    costs_here(tiny_target, loaded(tiny_target, head), True, said.append)
    assert "above temperature 0" in said[-1]
    weights = head / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"vocabulary", b"vocabulary", 1))  # the same bytes, another time: still the same checkpoint
    assert costs_here(tiny_target, loaded(tiny_target, head), False, said.append)[1] == costs
    assert set(profile.drafters) == {"eagle"}


def test_only_a_report_of_these_weights_and_this_target_counts(
    tiny_target: Target, make_target: Callable[..., Target], random_heads: Heads, tmp_path: Path
) -> None:
    good = reported_head(tmp_path / "good", random_heads("eagle"), tiny_target, {4: 1.5})
    stale = reported_head(tmp_path / "stale", random_heads("eagle"), tiny_target, {4: 1.5}, checkpoint="0" * 16)
    empty = reported_head(tmp_path / "empty", random_heads("eagle"), tiny_target, {})
    assert usable_report(tiny_target, loaded(tiny_target, good))[0] is not None
    assert "another checkpoint" in usable_report(tiny_target, loaded(tiny_target, stale))[1]
    assert "no tree that grows" in usable_report(tiny_target, loaded(tiny_target, empty))[1]
    assert "no trained head" in usable_report(tiny_target, build_drafter(tiny_target, parse_spec("prompt_lookup")))[1]
    other = make_target(seed=9)
    with pytest.warns(UserWarning, match="another target"):
        moved = loaded(other, good)
    assert "another target" in usable_report(other, moved)[1]
    (good / "report.json").write_text("{")
    assert "cannot be read" in usable_report(tiny_target, loaded(tiny_target, good))[1]


def test_whoever_must_wait_can_be_told_before(tiny_target: Target, random_heads: Heads, tmp_path: Path) -> None:
    drafter = loaded(tiny_target, reported_head(tmp_path / "head", random_heads("eagle"), tiny_target, {4: 1.5}))
    assert must_measure(tiny_target, drafter, 0.0)
    costs_here(tiny_target, drafter, False)
    assert not must_measure(tiny_target, drafter, 0.0)
    assert must_measure(tiny_target, drafter, 1.0)  # rule and draw do other work above temperature 0
    assert not must_measure(tiny_target, loaded(tiny_target, random_heads("eagle")), 0.0)  # no report: nothing to wait for
