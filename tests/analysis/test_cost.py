from __future__ import annotations

import pytest
from recorded import round_of, run_knowing, trace_of

from specviz.analysis.cost import Decomposition, Modelled, chain_length, chain_speedup, decompose, tree_length
from specviz.analysis.summary import summarise
from specviz.errors import BadInput
from specviz.target import Target


def test_the_worked_examples_come_out() -> None:
    narrow, wide = tree_length([0.6, 0.4, 0.3]), tree_length([0.8, 0.55, 0.3], [3, 2, 1])
    assert (round(narrow.tokens, 2), narrow.candidates) == (1.91, 3)
    assert (round(wide.tokens, 2), wide.candidates) == (2.37, 3 + 6 + 6)
    assert narrow.kind == "modelled"


def test_a_chain_is_the_geometric_sum_at_any_rate() -> None:
    assert chain_length(0.5, 3).tokens == pytest.approx((1 - 0.5**4) / (1 - 0.5))
    assert chain_length(1.0, 4) == Modelled(5.0, 4)  # the closed form divides by zero here
    assert chain_length(0.0, 4).tokens == 1.0
    assert chain_length(0.7, 3).tokens == pytest.approx(tree_length([0.7] * 3).tokens)


def test_the_modelled_speedup_pays_for_every_draft_step() -> None:
    assert chain_speedup(0.8, 4, 0.1) == pytest.approx(chain_length(0.8, 4).tokens / 1.4)
    assert chain_speedup(0.0, 4, 0.1) < 1


def test_rates_and_widths_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInput, match=r"1\.2"):
        chain_length(1.2, 3)
    with pytest.raises(BadInput, match="one width per hit rate"):
        tree_length([0.5, 0.5], [3])


def test_the_decomposition_of_a_real_pair_gives_the_measured_speedup(tiny_target: Target) -> None:
    trace, plain = run_knowing(tiny_target)
    found = decompose(trace, plain)
    assert found is not None
    mine, theirs = summarise(trace).tokens_per_second, summarise(plain).tokens_per_second
    assert mine is not None
    assert theirs is not None
    assert found.speedup == pytest.approx(mine / theirs)
    assert found.kind == "measured"


def test_costs_are_per_round_and_tau_is_the_ceiling_of_the_speedup() -> None:
    found = Decomposition(2.0, 0.05, 0.01, 0.002, 0.001, plain=0.03)
    assert found.round_cost == pytest.approx(0.063 / 0.03)
    assert found.speedup == pytest.approx(2.0 / 2.1)
    assert Decomposition(2.0, 0.03, 0.0, 0.0, 0.0, plain=0.03).speedup == 2.0


def test_there_is_no_decomposition_without_rounds() -> None:
    run = trace_of(round_of(0, (-1, 0), (1,)))
    assert decompose(trace_of(), run) is None
    assert decompose(run, trace_of()) is None


def test_the_terms_of_a_bench_are_counted_in_forwards_of_one_node() -> None:
    from specviz.analysis.cost import explain
    from specviz.analysis.summary import Summary

    mine = Summary(
        new_tokens=21, rounds=10, decoded_tokens=20, seconds={"verify": 0.6, "draft": 0.2, "accept": 0.04, "commit": 0.0, "record": 0.1, "wall": 1.0}
    )
    plain = Summary(new_tokens=21, rounds=20, decoded_tokens=20, seconds={"verify": 0.8, "draft": 0.0, "accept": 0.02, "commit": 0.0, "wall": 1.2})
    terms = explain(mine, plain)
    assert terms is not None
    assert (terms.plain_ms, terms.tau) == (pytest.approx(40.0), 2.0)
    assert [round(value, 6) for value in (terms.verify, terms.draft, terms.rule, terms.commit, terms.events)] == [1.5, 0.5, 0.1, 0.0, 0.25]
    assert terms.modelled == pytest.approx(2.0 / 2.1)
    assert terms.measured == pytest.approx((20 / 0.84) / (20 / 0.82))
    assert terms.wall == pytest.approx(1.2)
    assert terms.dearest in ("verify", "draft")  # both take half a forward beyond what plain decoding pays
    assert terms.without_dearest == pytest.approx(2.0 / 1.6)
    assert explain(mine, Summary()) is None
    assert explain(Summary(), plain) is None
