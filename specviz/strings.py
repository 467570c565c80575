"""Text of single tokens: what people see where only ids ran."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any


class Strings:
    """Gives the text of token ids and remembers which it has given, so that a trace names every id once.

    Bytes that are no whole character appear as <0xE2>, as in SentencePiece vocabularies. Without a tokenizer an id is its own name.
    A token is read from its name in the vocabulary, because decoding one alone would lose its leading space or half a character.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._known = tokenizer, set[int]()
        self._added = {} if tokenizer is None else {token: str(added) for token, added in tokenizer.added_tokens_decoder.items()}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._byte_level = backend is not None and "ByteLevel" in repr(backend.decoder)

    def text(self, token: int) -> str:
        """Returns the text of one token."""
        name = None if self._tokenizer is None else self._tokenizer.convert_ids_to_tokens(token)
        if name is None:
            return f"⟨{token}⟩"
        if token in self._added:
            return self._added[token]
        if self._byte_level and all(map(_byte_of().__contains__, name)):
            return _show(bytes(map(_byte_of().__getitem__, name)))
        return str(name).replace("▁", " ")

    def new(self, tokens: Iterable[int]) -> dict[str, str]:
        """Returns {id: text} of the tokens that were not given before."""
        fresh = set(tokens) - self._known
        self._known |= fresh
        return {str(token): self.text(token) for token in sorted(fresh)}


@cache
def _byte_of() -> dict[str, int]:
    """The byte-level BPE alphabet: printable bytes stand for themselves, the others for letters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    for place, byte in enumerate(b for b in range(256) if b not in set(plain)):
        table[chr(0x100 + place)] = byte
    return table


def _show(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 0x80 else f"<0x{b:02X}>" for b in raw)
