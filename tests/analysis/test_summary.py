from __future__ import annotations

import json

import pytest
from recorded import SECONDS, round_of, run_knowing, run_tiny, trace_of

from specviz.analysis.summary import Summary, account, baseline_of, baseline_record, measured_speedup, seconds_by_phase, summarise
from specviz.analysis.timeline import DECODING, timeline
from specviz.decode import PHASES
from specviz.errors import BadFile
from specviz.target import Target
from specviz.trace import Trace

CHAIN = (-1, 0, 1, 2)
ROUND = sum(SECONDS[name] for name in DECODING)


def test_tau_counts_the_bonus_and_leaves_out_the_prefill_and_its_token() -> None:
    found = summarise(trace_of(round_of(0, CHAIN, (1, 2, 3)), round_of(1, CHAIN, ())))
    assert (found.new_tokens, found.decoded_tokens, found.rounds, found.target_forwards) == (6, 5, 2, 2)
    assert found.tau == 2.5


def test_a_cut_round_counts_what_it_emitted() -> None:
    found = summarise(trace_of(round_of(0, CHAIN, (1, 2), cut=True), reason="eos"))
    assert found.tau == 2.0
    assert found.acceptance_histogram == (0, 0, 1)


def test_histogram_draft_counts_and_their_vllm_names() -> None:
    found = summarise(trace_of(round_of(0, CHAIN, (1, 2, 3)), round_of(1, (-1, 0, 0), (2,)), round_of(2, (-1,), ()), round_of(3, CHAIN, ())))
    told = found.to_json()["speculative_decoding"]
    assert found.acceptance_histogram == (2, 1, 0, 1)
    assert (found.draft_tokens, found.accepted_draft_tokens, found.spec_tokens) == (8, 4, 3)
    assert told["mean_acceptance_length"] == 1 + told["num_accepted_draft_tokens"] / told["num_spec_steps"] == 2.0
    assert told["draft_acceptance_rate"] == 0.5


def test_tokens_per_second_is_decoding_only() -> None:
    found = summarise(trace_of(round_of(0, CHAIN, (1,)), round_of(1, CHAIN, ())))
    assert found.decoding_seconds == pytest.approx(2 * ROUND)
    assert found.tokens_per_second == pytest.approx(3 / (2 * ROUND))
    assert found.seconds["total"] == pytest.approx(0.2 + 2 * ROUND)
    assert (found.seconds["wall"], found.seconds["record"]) == (9.0, pytest.approx(0.008))


def test_phases_are_those_of_the_loop() -> None:
    assert DECODING == PHASES


def test_before_the_first_round_rates_are_none_and_wall_waits_for_the_end() -> None:
    found = summarise(trace_of(reason=None))
    assert (found.tau, found.tokens_per_second, found.new_tokens) == (None, None, 1)
    assert found.seconds["wall"] is None
    assert Summary().tau is None


def test_summaries_add_up() -> None:
    one, two = summarise(trace_of(round_of(0, CHAIN, (1, 2, 3)))), summarise(trace_of(round_of(0, CHAIN, ())))
    both = one + two
    assert both.tau == 2.5
    assert both.acceptance_histogram == (1, 0, 0, 1)
    assert both.tokens_per_second == pytest.approx(5 / (2 * ROUND))
    assert both.seconds["wall"] == 18.0
    assert (one + summarise(trace_of(reason=None))).seconds["wall"] is None


def test_rows_of_a_batch_are_kept_apart() -> None:
    first, second = trace_of(round_of(0, CHAIN, (1,))), trace_of(round_of(0, CHAIN, (1, 2), row=1), row=1)
    both = Trace([*first.events, *second.events])
    assert summarise(both, 0) == summarise(first, 0)
    assert summarise(both, 1).tau == 3.0


def test_a_real_run_sums_to_what_finished_says(tiny_target: Target) -> None:
    trace, plain = run_knowing(tiny_target)
    end, found = trace.finished(), summarise(trace)
    assert end is not None
    assert (found.new_tokens, found.rounds) == (len(end.tokens), end.rounds)
    assert {name: seconds_by_phase(trace)[name] for name in end.seconds} == pytest.approx(dict(end.seconds))
    assert found.tau is not None
    assert found.tau > 1.5
    assert summarise(plain).tau == 1.0


def test_a_run_without_detail_keeps_its_tau(tiny_target: Target) -> None:
    with_detail, without = run_tiny(tiny_target), run_tiny(tiny_target, detail=False)
    assert summarise(without).tau == summarise(with_detail).tau
    assert summarise(without).by_depth.rounds == 0


def test_the_account_is_json_with_all_that_the_command_line_promises(tiny_target: Target) -> None:
    told = account(run_knowing(tiny_target)[0])
    promised = (
        "text token_ids prompt_tokens new_tokens rounds target_forwards mean_acceptance_length acceptance_histogram acceptance_by_depth "
        "seconds tokens_per_second target drafter rule sampling seed device dtype versions"
    )
    assert [name for name in promised.split() if told.get(name) is None] == []
    assert set(told["acceptance_by_depth"]) == {"conditional", "unconditional", "counts"}
    assert {"prefill", "draft", "verify", "accept", "commit", "total", "wall"} <= set(told["seconds"])
    assert told["rule"]["lossless"] is True
    json.dumps(told, allow_nan=False)


def test_the_account_of_a_running_trace_joins_token_texts() -> None:
    assert account(trace_of(round_of(0, CHAIN, (1,)), reason=None))["text"] == "seven t11 t99"


def test_timeline_has_a_place_for_every_forward() -> None:
    line = timeline(trace_of(round_of(0, CHAIN, (1, 2)), round_of(1, CHAIN, ())))
    assert (line.forwards, line.tokens) == ((0, 1, 2), (1, 4, 5))
    assert line.seconds == pytest.approx((0.0, ROUND, 2 * ROUND))
    assert timeline(Trace(trace_of().events[:1])).tokens == ()


def test_a_baseline_survives_saving_and_gives_the_speedup(tiny_target: Target) -> None:
    trace, plain = run_knowing(tiny_target)
    record = baseline_record(plain)
    assert len(record["times"]) == record["tokens"] == len(record["token_ids"])
    assert record["times"][0] == 0.0
    loaded = Trace.loads(trace.with_baseline(record).dumps())
    baseline = baseline_of(loaded)
    assert baseline is not None
    assert baseline.tokens_per_second == pytest.approx(summarise(plain).tokens_per_second)
    expected = (summarise(trace).tokens_per_second or 0) / (summarise(plain).tokens_per_second or 1)
    assert measured_speedup(loaded) == pytest.approx(expected)
    assert measured_speedup(trace) is None


def test_times_of_a_speculative_run_repeat_for_tokens_of_one_round() -> None:
    record = baseline_record(trace_of(round_of(0, CHAIN, (1, 2)), reason=None))
    assert record["times"] == pytest.approx([0.0, ROUND, ROUND, ROUND])


@pytest.mark.parametrize(
    "broken", [{"tokens": "12"}, {"seconds": 3.5}, {"seconds": {"verify": "x"}}, {"times": [0.0, None]}, {"times": 4}, {"token_ids": ["a"]}]
)
def test_a_damaged_baseline_is_refused(broken: dict[str, object]) -> None:
    trace = trace_of(round_of(0, CHAIN, (1,)))
    good = {"tokens": 12, "seconds": {"verify": 1.0}, "times": []}
    assert baseline_of(trace.with_baseline(good)) is not None
    with pytest.raises(BadFile, match="'baseline' is not what a trace holds"):
        Trace.loads(trace.with_baseline(good | broken).dumps())


def test_seconds_that_were_not_finite_count_as_nothing() -> None:
    trace = trace_of(round_of(0, CHAIN, (1,), seconds={"verify": 0.5, "draft": None}))
    assert summarise(trace).decoding_seconds == timeline(trace).seconds[-1] == 0.5
