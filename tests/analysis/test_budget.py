"""The node budget: the arithmetic of the choice, on machines whose costs are known by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from head_reports import make_report
from made_costs import costs, profile

from specviz.analysis.budget import budget_text, choose, taus_of
from specviz.analysis.head_report import Sampled

CPU = profile({1: 29.0, 8: 44.0, 24: 89.0})  # plain step 29 + 1 ms of rule
DRAFT = costs({1: 3.0, 8: 6.0, 24: 9.0})


def test_the_budget_is_the_one_that_gives_most_tokens_per_second() -> None:
    found = choose({8: 1.9, 16: 2.0, 24: 2.2}, CPU, DRAFT)
    assert [choice.nodes for choice in found.curve] == [8, 16, 24]
    eight, sixteen, _ = found.curve
    assert eight.speedup == pytest.approx(1.9 / ((44.0 + 6.0 + 1.0) / 30.0))
    assert sixteen.cost == pytest.approx((66.5 + 7.5 + 1.0) / 30.0)  # half way between the measured sizes
    assert (found.nodes, found.speedup) == (8, eight.speedup)
    assert found.text == "nodes=auto -> 8 (modelled 1.12x here)"
    assert found.plain is False


def test_where_nodes_cost_nothing_the_largest_tree_wins() -> None:
    assert choose({8: 1.9, 16: 2.0, 24: 2.2}, profile({1: 30.0, 64: 31.0}), costs({1: 1.0, 8: 1.0, 24: 1.0})).nodes == 24


def test_a_disturbed_measurement_models_no_speed_up_above_tau() -> None:
    disturbed = profile({1: 321.0, 4: 89.0, 16: 120.0})  # seen on a busy machine: one node dearer than sixteen
    found = choose({4: 1.9, 16: 2.5}, disturbed, costs({1: 1.0, 4: 1.0, 16: 1.0}))
    assert all(choice.verify >= 0.95 and choice.speedup < choice.tau for choice in found.curve)


def test_where_every_tree_is_slower_plain_decoding_is_chosen_and_said() -> None:
    found = choose({8: 1.2, 24: 1.3}, CPU, DRAFT)
    assert (found.nodes, found.plain, found.speedup) == (1, True, 1.0)
    assert "plain decoding" in found.text
    assert "the best, 8 nodes, 0.71x" in found.text
    assert len(found.curve) == 2


def test_a_draft_that_costs_more_moves_the_budget() -> None:
    taus = {4: 1.8, 24: 2.6}
    machine = profile({1: 30.0, 24: 36.0})
    assert choose(taus, machine, costs({1: 1.0, 4: 1.0, 24: 2.0})).nodes == 24
    assert choose(taus, machine, costs({1: 1.0, 4: 1.0, 24: 30.0})).nodes == 4


def test_taus_come_from_the_trees_that_grow() -> None:
    assert taus_of(make_report(), 0.0) == {24: 2.1, 60: 2.5}


def test_above_temperature_0_the_gain_over_one_token_shrinks_as_measured() -> None:
    report = make_report()  # at T = 0.7 the tree of 24 nodes gives 1.9 instead of 2.1
    share = 0.9 / 1.1
    assert taus_of(report, 0.7) == pytest.approx({24: 1.9, 60: 1.0 + 1.5 * share})
    assert taus_of(report, 0.35)[24] == pytest.approx(1.0 + 1.1 * (1.0 + share) / 2)
    assert taus_of(report, 1.5)[24] == pytest.approx(1.9)  # hotter than anything measured
    hot = replace(report, sampled=(*report.sampled, Sampled(1.0, "eagle@dynamic:nodes=24", 24, 8, 0.9, (), ())))
    assert taus_of(hot, 1.0) == {24: 1.0, 60: 1.0}  # never below the one token that every round gives
    assert taus_of(replace(report, sampled=()), 0.7) == taus_of(report, 0.0)


def test_a_record_from_a_file_may_hold_anything() -> None:
    assert budget_text({}) == "nodes=auto -> None: "
    assert budget_text({"nodes": "<b>", "speedup": "fast", "why": "x"}) == "nodes=auto -> <b>: x"
