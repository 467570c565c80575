"""The view: complete, JSON-safe, small, and the same whether it is streamed or sent at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from growing import run_growing
from recorded import round_of, run_knowing, trace_of

from specviz.analysis.summary import baseline_record
from specviz.errors import BadFile
from specviz.events import Drafted, Finished, Prefilled, Started, Verified
from specviz.sampling import Sampling
from specviz.target import Target
from specviz.trace import Trace
from specviz.ui import view


def bytes_of(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())


@pytest.fixture(scope="module")
def trace(tiny_target: Target) -> Trace:
    return run_growing(tiny_target, knobs={"nodes": 24, "depth": 4, "top_k": 6}, new=40)


def test_a_view_is_json_and_says_what_ran(trace: Trace) -> None:
    shown = view.whole(trace)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert shown["about"]["drafter"] == "growing"
    assert shown["about"]["shape"] == "dynamic"
    assert "nodes 24" in shown["about"]["knobs"]
    assert shown["about"]["lossless"] is True
    assert shown["prompt"] == {"text": "to be or not", "tokens": len(trace.started().prompt_ids)}
    assert shown["status"] == trace.finished().reason
    assert shown["total"] == len(shown["rounds"]) == len(trace.rounds())


def test_numbers_on_top_follow_their_definitions(trace: Trace) -> None:
    numbers, rounds = view.whole(trace)["summary"], trace.rounds()
    emitted = sum(len(one.verified.emitted) for one in rounds)
    assert numbers["tau"] == pytest.approx(emitted / len(rounds), rel=1e-3)
    assert numbers["tokens"] == emitted + 1
    assert numbers["forwards"] == len(rounds)
    assert numbers["speedup"] is None, "no baseline was run"
    assert numbers["says"]["speedup"] == "–"
    assert numbers["says"]["tau"] == f"{emitted / len(rounds):.2f}", "as the command line rounds it"


def test_the_speed_up_appears_with_a_baseline(tiny_target: Target) -> None:
    run, plain = run_knowing(tiny_target)
    shown = view.whole(run.with_baseline(baseline_record(plain)))
    assert shown["summary"]["speedup"] > 0


def test_tails_merged_by_round_give_the_whole(trace: Trace) -> None:
    known: dict[int, Any] = {}
    growing = Trace()
    for event in trace.replay():
        growing.events.append(event)
        if isinstance(event, Verified):
            shown = view.tail(growing, last=2)
            assert shown["status"] == "running"
            assert shown["total"] == event.round + 1
            assert shown["from"] == max(0, event.round - 1)
            known |= {one["i"]: one for one in shown["rounds"]}
    whole = view.whole(trace)
    assert whole["run"] == view.tail(growing)["run"]
    ends = [dict(one, strip=[spot[:3] for spot in one["strip"]]) for one in whole["rounds"]]  # the end of the text is known only then
    assert ends == [known[i] for i in range(len(known))]


def test_a_round_of_24_nodes_stays_small(trace: Trace) -> None:
    sizes = [(bytes_of(one), len(one["node"]["text"])) for one in view.whole(trace)["rounds"]]
    assert max(nodes for _, nodes in sizes) == 24
    assert max(size for size, _ in sizes) < 12_000
    assert bytes_of(view.tail(trace, last=4)) < 50_000


def test_columns_run_over_the_nodes_and_every_node_has_its_sentences(trace: Trace) -> None:
    for one, shown in zip(trace.rounds(), view.whole(trace)["rounds"], strict=True):
        size = len(one.drafted.tokens)
        assert {len(column) for column in shown["node"].values()} == {size}
        assert all(shown["say"][place] for why in shown["node"]["why"] for place in why)
        assert shown["node"]["parent"] == list(one.drafted.parents)
        for node in range(1, size):
            assert shown["node"]["total"][node] == pytest.approx(one.drafted.scores[node] * (shown["node"]["total"][one.drafted.parents[node]]), rel=2e-3)
        parents = {str(parent) for parent in one.drafted.parents if parent >= 0}
        for node in parents:
            target = [p for _, p in shown["top"][node]["target"]]
            assert len(target) == 5
            assert target == sorted(target, reverse=True)


def test_the_strip_names_the_kind_and_the_node_of_every_token(trace: Trace) -> None:
    for one, shown in zip(trace.rounds(), view.whole(trace)["rounds"], strict=True):
        nodes = [spot[2] for spot in shown["strip"]]
        assert nodes == [*one.verified.path, *([-1] if one.verified.bonus is not None else [])]
        assert [spot[1] for spot in shown["strip"]] == ["accepted"] * len(one.verified.path) + ["bonus"] * (one.verified.bonus is not None)


def test_sampled_rounds_carry_q_and_warped_p_and_greedy_ones_do_not(tiny_target: Target, trace: Trace) -> None:
    assert "q" not in view.whole(trace)["rounds"][0]["node"]
    sampled = run_growing(tiny_target, "cartesian", {"widths": "2-2"}, sampled=True, sampling=Sampling(temperature=0.7, seed=2), new=8)
    node = view.whole(sampled)["rounds"][0]["node"]
    assert node["q"][1] is not None
    assert node["warped"][1] is not None
    tests = view.whole(sampled)["rounds"][0]["test"]
    assert {"limit", "uniform"} <= set(next(iter(tests.values())))


def test_plain_decoding_has_plain_tokens(tiny_target: Target) -> None:
    _, plain = run_knowing(tiny_target)
    shown = view.whole(plain)
    assert {spot[1] for one in shown["rounds"] for spot in one["strip"]} == {"plain"}
    assert shown["first"]["say"][0].startswith("Plain")
    assert shown["summary"]["tau"] == 1.0


def text_trace(*texts: str, reason: str = "length") -> Trace:
    """The prefill's token, then one round whose path and bonus spell the texts."""
    size = len(texts) - 1
    first, (drafted, verified) = texts[0], round_of(0, tuple(range(-1, size - 1)), tuple(range(1, size)))
    strings = {"7": first, "10": first} | {str(10 + node): texts[node] for node in range(1, size)} | {"99": texts[-1]}
    trace = trace_of((replace(drafted, strings=strings), verified), reason=reason)
    return Trace([replace(e, strings={**e.strings, "7": first}) if isinstance(e, Prefilled) else e for e in trace.events])


def test_the_strip_is_faithful_where_a_character_spans_tokens() -> None:
    shown = view.whole(text_trace("Ça", " <0xF0><0x9F>", "<0x99><0x82>", "\n", "it<0xE2><0x80><0x99>s"))
    assert shown["first"]["text"] == "Ça"
    assert [spot[0] for spot in shown["rounds"][0]["strip"]] == [" ", "🙂", "\n", "it’s"]
    assert shown["rounds"][0]["node"]["text"][1] == "·<0xF0><0x9F>", "a node shows the bytes that it is"
    assert shown["rounds"][0]["node"]["text"][3] == "⏎"


def test_the_end_token_is_marked_when_it_ended_the_text() -> None:
    ended = view.whole(text_trace("a", "b", "<|im_end|>", reason="eos"))
    assert ended["rounds"][0]["strip"][-1] == ["<|im_end|>", "bonus", -1, "end"]
    full = view.whole(text_trace("a", "b", "c"))
    assert full["rounds"][0]["strip"][-1] == ["c", "bonus", -1]


def test_a_round_cut_inside_its_path_has_no_bonus() -> None:
    shown = view.whole(trace_of(round_of(0, (-1, 0, 1), (1,), cut=True), reason="eos"))["rounds"][0]
    assert shown["bonus"] is None
    assert len(shown["strip"]) == 1


def test_cut_candidates_hang_below_their_parent_and_orphans_are_left_out(trace: Trace) -> None:
    for one, shown in zip(trace.rounds(), view.whole(trace)["rounds"], strict=True):
        assert len(shown["cut"]) == sum(parent >= 0 for _, parent, _ in one.drafted.pruned)
        assert all(0 <= parent < len(one.drafted.tokens) for _, parent, _, _ in shown["cut"])
    assert any(shown["cut"] for shown in view.whole(trace)["rounds"])


def test_the_opening_round_is_the_first_that_accepted_most() -> None:
    rounds = [round_of(0, (-1, 0, 1), ()), round_of(1, (-1, 0, 1), (1, 2)), round_of(2, (-1, 0, 1), (1, 2))]
    assert view.whole(trace_of(*rounds))["start"] == 1


def test_runs_have_names_that_survive_saving_and_differ_by_what_was_asked(trace: Trace) -> None:
    assert view.whole(Trace.loads(trace.dumps())) == view.whole(trace)
    other = Trace([replace(event, prompt="something else") if isinstance(event, Started) else event for event in trace.events])
    assert view.whole(other)["run"] != view.whole(trace)["run"]


def test_a_run_that_has_only_begun_or_failed_can_be_shown() -> None:
    begun = trace_of(reason=None)
    assert view.tail(begun)["rounds"] == []
    assert view.tail(begun)["status"] == "running"
    nothing = Trace([event for event in begun.events if isinstance(event, Started)])
    assert view.whole(nothing)["first"] is None
    failed = Trace([*nothing.events, Finished(0, "error", (), "", 0, {}, "out of memory")])
    assert view.whole(failed)["message"] == "out of memory"


def test_a_recording_without_detail_keeps_its_numbers(tiny_target: Target) -> None:
    run, _ = run_knowing(tiny_target, detail=False)
    shown = view.whole(run)
    assert shown["rounds"] == []
    assert shown["summary"]["tau"] > 1


def test_a_trace_with_an_unknown_verdict_is_refused(trace: Trace) -> None:
    odd = Trace([replace(e, verdicts=("root", *["__proto__"] * (len(e.verdicts) - 1))) if isinstance(e, Verified) else e for e in trace.events])
    with pytest.raises(BadFile, match="__proto__"):
        view.whole(odd)


def test_rows_are_told_apart() -> None:
    second = [
        replace(event, row=1, prompt="other") if isinstance(event, Started) else replace(event, row=1) for event in trace_of(round_of(0, (-1, 0), (1,))).events
    ]
    both = Trace([*trace_of(round_of(0, (-1, 0), ())).events, *second])
    assert view.whole(both, 1)["prompt"]["text"] == "other"
    assert view.whole(both, 1)["rounds"][0]["path"] == [1]
    assert view.whole(both, 0)["rounds"][0]["path"] == []
    assert isinstance(both.events[2], Drafted)
