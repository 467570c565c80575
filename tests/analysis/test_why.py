"""Why: every verdict and reason has its sentence, and the sentences tell the truth about the recorded numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from growing import run_growing

from specviz.analysis import why as module
from specviz.analysis.case import VERDICTS, Case
from specviz.analysis.why import explain, summary_of, why, why_bonus, why_first, why_pruned
from specviz.errors import BadFile
from specviz.events import Drafted, Prefilled, Verified
from specviz.sampling import Sampling
from specviz.target import Target
from specviz.trace import Trace

TEXT = {1: "root", 10: " the", 11: " is", 12: "\n", 20: " a", 99: " end"}
GREEDY, WARM = Sampling().to_json(), Sampling(temperature=1.0).to_json()
RULE = {"name": "rejection", "knobs": {}, "lossless": True}


def case(
    verdicts: list[str], path: tuple[int, ...] = (), *, sampling: dict[str, Any] = GREEDY, tests: dict[int, dict[str, Any]] | None = None, **changes: Any
) -> Case:
    """A root with children 1 and 2; node 1 has a child 3. The target gives " the" 0.08 (3rd), " is" 0.61 (1st), and "\\n" 0.5 (1st) below node 1."""
    tokens, parents = (1, 10, 11, 12), (-1, 0, 0, 1)
    columns = ("node", "verdict", "reason", "p", "q", "residual_p", "residual_q", "limit", "uniform")
    rows = [{"node": node, "verdict": verdicts[node - 1], **dict.fromkeys(columns[2:]), **test} for node, test in (tests or {}).items()]
    drafted = Drafted(
        0, 4, tokens, parents, (0, 1, 1, 2), (0, 0, 1, 0), (1.0, 0.5, 0.2, 0.7), (None,) * 4, ("eagle",) * 4, (True,) * 4, (),
        {"0": ((10, 0.5), (11, 0.2), (20, 0.1))}, changes.pop("pruned", ()), {}, {},
    )  # fmt: skip
    verified = Verified(
        0, 4, path, 99, "target", (99,), 7, ("root", *verdicts), {name: tuple(row[name] for row in rows) for name in columns}, (None, 0.08, 0.61, 0.5),
        (None, 0.08, 0.61, 0.5), (None, 2, 0, 0), (1.0,) * 4, (11, 12, 99, 99), {"0": ((11, 0.61), (20, 0.2), (10, 0.08)), "1": ((12, 0.5),)}, {},
    )  # fmt: skip
    return Case(drafted, replace(verified, **changes), TEXT, sampling, RULE)


def test_rejected_at_temperature_0_names_what_the_target_wanted_and_how_far_this_was() -> None:
    told = explain(case(["rejected", "accepted", "unreached"], (2,), tests={1: {"reason": "not_argmax"}}), 1)
    assert told.verdict == "rejected"
    assert told.headline == "Rejected: the target wanted “·is” (p = 0.61); this token had p = 0.080 and is only the target's 3rd choice."


def test_accepted_at_temperature_0_says_that_it_is_the_most_likely_token() -> None:
    told = explain(case(["rejected", "accepted", "unreached"], (2,), tests={2: {"reason": "argmax"}}), 2)
    assert told.headline == "Accepted: it is the target's most likely token after “root” (p = 0.61)."
    assert any("candidate 2" in line for line in told.more), "a tree was needed: the draft's first guess was wrong"


def test_rejection_sampling_shows_the_draw_and_the_ratio_it_was_held_against() -> None:
    numbers = {"p": 0.55, "q": 0.60, "residual_p": 0.55, "residual_q": 0.60, "uniform": 0.31, "limit": 0.55 / 0.60}
    told = explain(case(["accepted", "untested", "untested"], (1,), sampling=WARM, tests={1: {"reason": "below_limit", **numbers}}), 1)
    assert told.headline == "Accepted: the draw u = 0.31 fell below min(1, p/q) = min(1, 0.55/0.60) = 0.92."
    above = numbers | {"uniform": 0.97}
    told = explain(case(["rejected", "untested", "untested"], sampling=WARM, tests={1: {"reason": "above_limit", **above}}), 1)
    assert told.headline == "Rejected: the draw u = 0.97 was not below min(1, p/q) = min(1, 0.55/0.60) = 0.92."
    assert any("renormalised" in line for line in told.more)


def test_a_draw_close_to_its_limit_gets_the_digits_that_tell_them_apart() -> None:
    numbers = {"p": 0.4, "q": 0.5, "residual_p": 0.4, "residual_q": 0.5, "uniform": 0.80004, "limit": 0.8}
    told = explain(case(["rejected", "untested", "untested"], sampling=WARM, tests={1: {"reason": "above_limit", **numbers}}), 1)
    assert "u = 0.80004 was not below" in told.headline
    assert told.headline.endswith("= 0.80000.")


def test_residuals_are_told_when_rejected_siblings_changed_them() -> None:
    first = {"reason": "above_limit", "p": 0.1, "q": 0.5, "residual_p": 0.1, "residual_q": 0.5, "uniform": 0.9, "limit": 0.2}
    second = {"reason": "below_limit", "p": 0.3, "q": 0.2, "residual_p": 0.45, "residual_q": 0.4, "uniform": 0.1, "limit": 1.0}
    told = explain(case(["rejected", "accepted", "unreached"], (2,), sampling=WARM, tests={1: first, 2: second}), 2)
    assert "1 sibling rejected before it changed what is left: p from 0.30 to 0.45, q from 0.20 to 0.40." in told.more
    assert "The target gives it at least as much as the draft did, so it could not be rejected." in told.more
    certain = second | {"q": None, "residual_q": None, "limit": 0.45}
    assert any("q = 1" in line for line in explain(case(["rejected", "accepted", "unreached"], (2,), sampling=WARM, tests={1: first, 2: certain}), 2).more)


def test_deterministic_candidates_above_temperature_0_are_told_as_one_draw() -> None:
    tests = {1: {"reason": "not_drawn", "p": 0.08, "residual_p": 0.08, "uniform": 0.4}, 2: {"reason": "drawn", "p": 0.61, "residual_p": 0.66, "uniform": 0.4}}
    both = case(["rejected", "accepted", "unreached"], (2,), sampling=WARM, tests=tests)
    assert explain(both, 1).headline == "Rejected: the target drew “·is” (p = 0.61); this token had p = 0.080 and is only the target's 3rd choice."
    accepted = explain(both, 2)
    assert accepted.headline == "Accepted: the target drew exactly this token (u = 0.40); it had p = 0.61."
    assert any("chance was 0.66" in line for line in accepted.more)


def test_the_likeliest_token_rejected_above_temperature_0_says_that_this_happens() -> None:
    tests = {2: {"reason": "not_drawn", "p": 0.61, "residual_p": 0.61, "uniform": 0.9}}
    told = explain(case(["rejected", "rejected", "unreached"], sampling=WARM, tests=tests, wanted=(20, 12, 99, 99)), 2)
    assert told.headline == "Rejected: the target drew “·a” (p = 0.20); this token had p = 0.61 and is the target's first choice."
    assert any("not always drawn" in line for line in told.more)


def test_typical_acceptance_names_p_and_the_limit() -> None:
    tests = {
        1: {"reason": "typical", "p": 0.3, "limit": 0.09},
        2: {"reason": "below_typical_limit", "p": 0.05, "limit": 0.09},
        3: {"reason": "longer_path_won", "p": 0.2, "limit": 0.1},
    }
    both = case(["accepted", "rejected", "passed_not_chosen"], (1,), sampling=WARM, tests=tests)
    assert explain(both, 1).headline == "Accepted: its p = 0.30 is above the limit 0.09, and no other path is better."
    assert explain(both, 2).headline == "Rejected: its p = 0.05 is not above the limit 0.09."
    assert explain(both, 3).headline.startswith("Passed, but not chosen: its p = 0.20 is above the limit 0.10,")


def test_nodes_that_were_never_judged_name_the_node_that_decided_it() -> None:
    untested = case(["accepted", "untested", "rejected"], (1,), tests={1: {"reason": "argmax"}, 3: {"reason": "not_argmax"}})
    assert explain(untested, 2).headline == "Never tested: its sibling “·the” was accepted first."
    fallen = case(["rejected", "accepted", "unreached"], (2,), tests={1: {"reason": "not_argmax"}, 2: {"reason": "argmax"}})
    told = explain(fallen, 3)
    assert told.headline == "Never reached: “·the” above it was rejected, so nothing below that can be used."
    assert any("would have been accepted" in line for line in told.more), "the target wanted exactly this token there"
    other = replace(fallen, verified=replace(fallen.verified, wanted=(11, 20, 99, 99)))
    assert not any("would have been accepted" in line for line in explain(other, 3).more)


def test_root_passenger_and_what_came_after_the_end_of_the_text() -> None:
    cut = case(["accepted", "untested", "accepted"], (1,), tests={1: {"reason": "argmax"}, 3: {"reason": "argmax"}})
    assert explain(cut, 0).verdict == "root"
    assert explain(cut, 3).verdict == "cut"
    assert "not written" in explain(cut, 3).headline
    riding = case(["passenger", "accepted", "unreached"], (2,), tests={2: {"reason": "argmax"}})
    assert explain(riding, 1).headline.startswith("Passenger")


def test_a_rule_with_its_own_reasons_is_told_with_its_numbers() -> None:
    told = explain(case(["rejected", "untested", "unreached"], tests={1: {"reason": "block_lost", "p": 0.2, "limit": 0.4}}), 1)
    assert told.headline == "Rejected by rule rejection: block lost."
    assert told.more == ("It read p = 0.20, limit = 0.40.",)


def test_an_unknown_verdict_is_an_error_that_names_it() -> None:
    with pytest.raises(BadFile, match="'constructor' of node 1"):
        explain(case(["constructor", "rejected", "unreached"]), 1)


def test_the_bonus_says_where_it_came_from_and_whether_the_draft_had_it() -> None:
    plain = case(["rejected", "rejected", "unreached"], bonus=20)
    told = why_bonus(plain)
    assert told.headline == "Bonus: the target's most likely token after “root” (p = 0.20)."
    assert "The draft had it as its 3rd choice here, but the tree held no node for it." in told.more
    assert any("gains this token alone" in line for line in told.more)
    left = why_bonus(case(["rejected", "rejected", "unreached"], sampling=WARM, bonus=20, bonus_source="residual"))
    assert left.headline.startswith("Bonus: drawn from what the rejected candidates left")
    cut = why_bonus(case(["rejected", "rejected", "unreached"], bonus=20, pruned=((20, 0, 0.01),)))
    assert any("cut before verification" in line for line in cut.more)


def test_a_round_without_candidates_is_plain_decoding() -> None:
    alone = case(["rejected", "rejected", "unreached"], bonus=20)
    drafted = Drafted(0, 4, (1,), (-1,), (0,), (0,), (1.0,), (None,), ("x",), (True,), (), {}, (), {}, {})
    told = why_bonus(replace(alone, drafted=drafted))
    assert told.verdict == "plain"
    assert told.headline.startswith("Plain: the target's most likely token")


def test_a_cut_candidate_that_the_target_wanted_says_so() -> None:
    wanted = case(["rejected", "rejected", "unreached"], wanted=(20, 12, 99, 99), pruned=((20, 0, 0.01), (99, 0, 0.02), (5, -1, 0.001)))
    assert "so a larger tree would have gained it" in why_pruned(wanted, 0).more[0]
    assert why_pruned(wanted, 1).more == ("The target never saw it.",)
    assert why_pruned(wanted, 2).verdict == "pruned"


def test_the_first_token_belongs_to_no_round() -> None:
    told = why_first(Prefilled(0, 10, ((10, 0.7),), {}), TEXT)
    assert told.headline == "Plain: the first token comes from reading the prompt (p = 0.70)."


def test_a_round_in_one_line() -> None:
    assert summary_of(case(["rejected", "rejected", "unreached"])) == "Round 5: 3 drafted, 0 accepted, 1 gained: “·end”."


RUNS = {
    "greedy": {"rule": "greedy"},
    "rejection at 0": {},
    "one draw": {"sampling": Sampling(temperature=0.8, top_p=0.95, seed=3)},
    "sampled": {"shape": "cartesian", "knobs": {"widths": "3-2-1"}, "sampled": True, "sampling": Sampling(temperature=1.0, seed=5), "new": 60},
    "typical": {"rule": "typical", "sampling": Sampling(temperature=0.7, seed=1), "new": 60},
}
REASONS: set[str] = set()


@pytest.mark.parametrize("name", RUNS)
def test_every_node_of_a_real_run_is_explained_and_the_words_fit_the_numbers(name: str, tiny_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexplained(case: Case, node: int) -> None:
        raise AssertionError(f"no sentence for {case.tests.get(node)}")

    monkeypatch.setattr(module, "_other_rule", unexplained)
    trace = run_growing(tiny_target, **RUNS[name])
    for one in cases(trace):
        for node in range(len(one.drafted.tokens)):
            told = explain(one, node)
            assert told.verdict in VERDICTS
            check(one, node, told.headline)
        why_bonus(one)
        REASONS.update(one.verified.tests["reason"])


def test_the_runs_above_met_every_reason_that_the_rules_give() -> None:
    if len(REASONS) == 0:
        pytest.skip("runs only together with the runs above")
    assert set(module._BY_REASON) == REASONS


def cases(trace: Trace) -> list[Case]:
    meta = trace.started().meta
    return [Case(one.drafted, one.verified, trace.strings, meta["sampling"], meta["rule"]) for one in trace.rounds()]


def check(one: Case, node: int, headline: str) -> None:
    """The printed comparison holds, and the named token is the right one."""
    test, parent = one.tests.get(node, {}), one.drafted.parents[node]
    reason = None if one.verdict(node) == "cut" else test.get("reason")
    numbers = [float(n) for n in re.findall(r"(?:u = |= |limit )(\d[\d.e-]*\d|\d)", headline)]
    if reason == "below_limit":
        assert numbers[0] < numbers[-1]
    elif reason == "above_limit":
        assert numbers[0] >= numbers[-1]
    elif reason in ("typical", "longer_path_won"):
        assert numbers[0] > numbers[-1]
    elif reason == "below_typical_limit":
        assert numbers[0] <= numbers[-1]
    elif reason == "argmax":
        assert one.verified.tops[str(parent)][0][0] == one.drafted.tokens[node]
    elif reason == "not_argmax":
        assert one.text(one.verified.tops[str(parent)][0][0]) in headline
    elif one.verdict(node) == "untested":
        winner = next(n for n in one.verified.path if one.drafted.parents[n] == parent)
        assert one.node(winner) in headline
    elif one.verdict(node) == "unreached":
        above = one.drafted.parents[node]
        assert above > 0
        assert above not in one.verified.path


def test_why_takes_a_round_apart_from_its_trace(tiny_target: Target) -> None:
    trace = run_growing(tiny_target, new=6)
    one, meta = trace.rounds()[0], trace.started().meta
    told = why(one.drafted, one.verified, trace.strings, 0, sampling=meta["sampling"], rule=meta["rule"])
    assert told.verdict == "root"
    with pytest.raises(IndexError):
        why(one.drafted, one.verified, trace.strings, 999, sampling=meta["sampling"], rule=meta["rule"])
