from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specviz.strings import Strings


@pytest.fixture(scope="module")
def pieces():
    """A SentencePiece-like tokenizer: letters stand for themselves, ▁ for a space."""
    vocab = [("<unk>", 0.0), ("▁the", -1.0), ("é", -2.0), ("ok", -2.0), ("<0xE2>", -9.0)]
    backend = Tokenizer(models.Unigram(vocab, unk_id=0))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_every_id_of_a_byte_level_vocabulary_has_a_text(tiny_tokenizer):
    strings = Strings(tiny_tokenizer)
    for text in ("the cat sat", "a\n\tb", "naïve €5 日本"):
        ids = tiny_tokenizer(text).input_ids
        shown = "".join(strings.text(i) for i in ids)
        assert shown == text if text.isascii() else "<0x" in shown
    assert strings.text(2) == "<|im_end|>"


def test_half_a_character_is_shown_as_bytes(tiny_tokenizer):
    euro = tiny_tokenizer("€").input_ids
    assert [Strings(tiny_tokenizer).text(i) for i in euro] == ["<0xE2>", "<0x82>", "<0xAC>"]


def test_letters_of_other_vocabularies_are_not_taken_for_bytes(pieces):
    strings = Strings(pieces)
    assert [strings.text(i) for i in (1, 2, 3)] == [" the", "é", "ok"]


def test_an_added_token_is_its_own_text(tiny_tokenizer):
    import copy

    more = copy.deepcopy(tiny_tokenizer)
    more.add_tokens(["naïve"])
    assert Strings(more).text(len(more) - 1) == "naïve"


def test_ids_without_a_name_are_shown_as_numbers(tiny_tokenizer):
    assert Strings(tiny_tokenizer).text(100_000) == "⟨100000⟩"
    assert Strings(None).text(7) == "⟨7⟩"


def test_each_id_is_given_once(tiny_tokenizer):
    strings = Strings(tiny_tokenizer)
    assert set(strings.new([5, 3, 5])) == {"3", "5"}
    assert set(strings.new([5, 6])) == {"6"}
