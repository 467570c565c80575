from __future__ import annotations

import pytest
from recorded import round_of, run_knowing, trace_of, verified

from specviz.analysis.acceptance import CalibrationBin, DepthAcceptance, acceptance_by_depth, calibration
from specviz.target import Target

CHAIN = (-1, 0, 1, 2)


def test_counts_of_a_chain_are_those_worked_out_by_hand() -> None:
    # three rounds on a chain of three: all, one and none accepted
    found = acceptance_by_depth(trace_of(round_of(0, CHAIN, (1, 2, 3)), round_of(1, CHAIN, (1,)), round_of(2, CHAIN, ())).rounds())
    assert found == DepthAcceptance(3, (3, 2, 1), (2, 1, 1))
    assert found.conditional == (2 / 3, 1 / 2, 1.0)
    assert found.unconditional == (2 / 3, 1 / 3, 1 / 3)


def test_a_depth_without_a_candidate_below_the_accepted_node_is_unobserved() -> None:
    # node 2 is a leaf while its sibling has a child: accepting node 2 says nothing about depth 2
    found = acceptance_by_depth(trace_of(round_of(0, (-1, 0, 0, 1), (2,))).rounds())
    assert found == DepthAcceptance(1, (1,), (1,))


def test_a_cut_round_is_not_tested_below_its_last_token() -> None:
    cut = acceptance_by_depth(trace_of(round_of(0, CHAIN, (1,), cut=True)).rounds())
    whole = acceptance_by_depth(trace_of(round_of(0, CHAIN, (1,))).rounds())
    assert (cut.tested, cut.accepted) == ((1,), (1,))
    assert (whole.tested, whole.accepted) == ((1, 1), (1, 0))


def test_passengers_are_no_candidates() -> None:
    found = acceptance_by_depth(trace_of(round_of(0, (-1, 0, 0), (), candidate=[True, False, False])).rounds())
    assert found == DepthAcceptance(1, (), ())


def test_sums_continue_the_shorter_one_with_zeros_and_conditional_is_none_where_nothing_was_tested() -> None:
    both = DepthAcceptance(2, (2, 1), (1, 0)) + DepthAcceptance(1, (1,), (1,))
    assert both == DepthAcceptance(3, (3, 1), (2, 0))
    assert DepthAcceptance(1, (0,), (0,)).conditional == (None,)
    assert both.to_json()["counts"] == {"rounds": 3, "tested": [3, 1], "accepted": [2, 0]}


def test_unconditional_rates_add_up_to_tau_on_a_real_run(tiny_target: Target) -> None:
    trace, _ = run_knowing(tiny_target)
    whole = [event for event in verified(trace) if event.bonus is not None]
    found = acceptance_by_depth(one for one in trace.rounds() if one.verified in whole)
    assert 1 + sum(share or 0 for share in found.unconditional) == pytest.approx(sum(len(event.emitted) for event in whole) / len(whole))
    assert 0 < sum(found.accepted) < sum(found.tested)


def test_calibration_bins_candidates_of_accepted_parents_only() -> None:
    # node 1 accepted at confidence 0.95, its sibling not; below node 1 a rejected candidate; node 4 hangs under a rejected node
    parents, scores, p = (-1, 0, 0, 1, 2), [1.0, 0.95, 0.05, 0.35, 0.9], [None, 0.9, 0.06, 0.1, 0.8]
    bins = calibration(trace_of(round_of(0, parents, (1,), scores=scores, p=p)))
    assert bins == (CalibrationBin(0.0, 0.1, 1, 0.05, 0.06, 0.0), CalibrationBin(0.3, 0.4, 1, 0.35, 0.1, 0.0), CalibrationBin(0.9, 1.0, 1, 0.95, 0.9, 1.0))


def test_calibration_leaves_out_what_lies_below_a_cut_and_nodes_without_confidence() -> None:
    assert calibration(trace_of(round_of(0, CHAIN, (1,), cut=True, scores=[1.0, 1.0, 0.5, 0.5])))[0].count == 1
    assert calibration(trace_of(round_of(0, CHAIN, (1,)))) == ()
