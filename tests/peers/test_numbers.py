"""The numbers of `bench --peers`, by hand."""

from __future__ import annotations

import pytest

from specviz.analysis.peers import Entrant, Sample, differences, row, tau


def entrant(name: str, *samples: tuple[int, tuple[int, ...], float, int | None]) -> Entrant:
    found = Entrant(name, name, "")
    found.samples = {place: Sample(tokens, seconds, forwards) for place, tokens, seconds, forwards in samples}
    return found


PROMPTS = ["a", "b", "c"]
REFERENCE = entrant("plain", (0, (1, 2, 3, 4), 2.0, 4), (1, (5, 6), 1.0, 2), (2, (7, 8), 1.0, 2))


def test_rates_ratios_and_equality_come_from_prompts_that_both_decoded():
    mine = entrant("fast", (0, (1, 2, 3, 4), 1.0, 2), (1, (5, 9), 0.25, 1))
    mine.reason = "ended"
    told = row(mine, REFERENCE, PROMPTS, {})
    assert told["tokens_per_second"] == {"median": 6.0, "low": 5.0, "high": 7.0, "count": 2}  # 4 and 8
    assert told["speed_ratio"] == {"median": 3.0, "low": 2.5, "high": 3.5, "count": 2}  # 2 and 4
    assert told["equal"] == 0.5
    assert told["tau"] == 2.0
    assert (told["prompts"], told["new_tokens"], told["reason"]) == (2, 6, "ended")
    assert [one["equal"] for one in told["per_prompt"]] == [True, False]


def test_where_texts_part_is_found_by_prompt():
    mine = entrant("other", (0, (1, 2, 3), 1.0, 3), (1, (5, 9), 1.0, 2))
    found = differences(mine, REFERENCE)
    assert {place: (one.position, one.baseline, one.other) for place, one in found.items()} == {0: (3, 4, None), 1: (1, 6, 9)}


def test_who_decoded_nothing_has_no_numbers():
    told = row(entrant("gone"), REFERENCE, PROMPTS, {})
    assert (told["tokens_per_second"], told["speed_ratio"], told["equal"], told["tau"]) == (None, None, None, None)


def test_without_a_reference_there_are_rates_and_no_ratios():
    told = row(REFERENCE, Entrant("none", "none", ""), PROMPTS, {})
    assert told["tokens_per_second"]["count"] == 3
    assert (told["speed_ratio"], told["equal"]) == (None, None)


@pytest.mark.parametrize(("forwards", "expected"), [((2, 1), 2.0), ((2, None), None)])
def test_tau_needs_every_forward(forwards, expected):
    assert tau([Sample((1, 2, 3, 4), 1.0, forwards[0]), Sample((1, 2), 1.0, forwards[1])]) == expected
