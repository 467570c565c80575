"""Numbers and token texts in sentences."""

from __future__ import annotations

import pytest

from specviz.analysis.words import apart, choice, joined, probability, visible


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.61, "0.61"), (0.083, "0.083"), (0.0012, "0.0012"), (5e-5, "5e-5"), (0.997, "0.997"), (0.99999, "0.9999"), (0.5, "0.50")],
)
def test_probabilities_keep_two_significant_digits_and_never_round_to_certainty(value: float, text: str) -> None:
    assert probability(value) == text


def test_two_numbers_get_as_many_digits_as_show_which_is_larger() -> None:
    assert apart(0.31, 0.92) == ("0.31", "0.92")
    assert apart(0.31041, 0.31049) == ("0.3104", "0.3105")
    assert apart(0.2, 1.0) == ("0.20", "1")
    assert apart(1e-9, 0.09) == ("1e-9", "0.09"), "a number that is not 0 is not written as 0"


def test_ranks_count_from_first() -> None:
    assert [choice(rank) for rank in (0, 1, 2, 3, 10, 20, 1234)] == [
        "first choice", "2nd choice", "3rd choice", "4th choice", "11th choice", "21st choice", "1,235th choice",
    ]  # fmt: skip


def test_nothing_in_a_token_stays_invisible() -> None:
    assert visible(" the") == "·the"
    assert visible("\n\t") == "⏎⇥"
    assert visible("") == "∅"
    assert visible("a\u202eb\x00\u200b") == "a⟨202E⟩b⟨0⟩⟨200B⟩"
    assert visible("🙂é") == "🙂é"


def test_bytes_join_where_the_character_completes() -> None:
    assert joined(["it", "<0xE2>", "<0x80>", "<0x99>s", " ok"]) == ["it", "", "", "’s", " ok"]
    assert joined([" <0xF0><0x9F>", "<0x99><0x82>!"]) == [" ", "🙂!"]


def test_bytes_that_never_complete_show_as_replacement_and_lose_nothing_else() -> None:
    assert joined(["a<0xE2>", "b"]) == ["a", "\ufffdb"]
    assert joined(["a<0xE2>"]) == ["a\ufffd"]
    assert joined([]) == []
    assert joined(["<0xZZ>", "<0xe2>"]) == ["<0xZZ>", "<0xe2>"], "only the form that the string table uses is a byte"
