"""How numbers and token texts are written in sentences: with as many digits as are needed, and with nothing invisible."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_BYTE = re.compile("<0x([0-9A-F]{2})>")
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}
_SIGNS = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def visible(text: str) -> str:
    """Returns the text with every character to be seen: spaces as ·, newlines as ⏎, control and format characters as their code."""
    return "".join(_SIGNS.get(c) or (f"⟨{ord(c):X}⟩" if unicodedata.category(c) in ("Cc", "Cf", "Co", "Zl", "Zp") else c) for c in text) or "∅"


def harmless(text: str) -> str:
    """Returns text with every control character but tab and newline spelled out: a terminal must never obey a text."""
    return text.translate(CONTROLS)


def harmless_record(value: Any) -> Any:
    """Returns a JSON value with every text in it harmless, names included."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, Mapping):
        return {harmless(name): harmless_record(held) for name, held in value.items()}
    return [harmless_record(one) for one in value] if isinstance(value, list) else value


def quoted(text: str) -> str:
    """Returns the visible text in quotation marks."""
    return f"“{visible(text)}”"


def percents(shares: Sequence[float | None], between: str = " ") -> str:
    """Returns shares in whole percent, one after another: 65 57 58; – for a share that is not known."""
    return between.join("–" if share is None else f"{100 * share:.0f}" for share in shares)


def probability(value: float) -> str:
    """Returns a probability with two significant digits or more: 0.61, 0.083, 0.0012."""
    if value in (0.0, 1.0):
        return f"{value:g}"
    if value < 0.00095:
        return f"{value:.0e}".replace("e-0", "e-")
    if value >= 0.995:
        return f"{min(value, 0.9999):.{3 if value < 0.9995 else 4}f}"
    return f"{value:.{2 if value >= 0.0995 else 3 if value >= 0.00995 else 4}f}"


def apart(a: float, b: float) -> tuple[str, str]:
    """Returns both numbers with the fewest digits, at least two, that show which one is larger; none that is not 0 as 0."""
    for digits in range(2, 16):
        pair = f"{a:.{digits}f}", f"{b:.{digits}f}"
        if pair[0] != pair[1] or a == b:
            first, second = (probability(value) if value in (0.0, 1.0) or not float(text) else text for text, value in zip(pair, (a, b), strict=True))
            return first, second
    return repr(a), repr(b)


def is_worth(name: str, value: float | None) -> str:
    """Returns "p = 0.61", or "p not recorded"."""
    return f"{name} not recorded" if value is None else f"{name} = {probability(value)}"


def choice(rank: int) -> str:
    """Returns "first choice", "3rd choice" for a rank that counts from 0."""
    return "first choice" if rank == 0 else f"{ordinal(rank + 1)} choice"


def ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def joined(texts: Iterable[str]) -> list[str]:
    """Returns the text that each token adds, so that their concatenation is faithful.

    A token that holds only part of a character (written <0xE2> in the string table) adds nothing; the one that completes it adds
    the whole character. Bytes that never form a character become U+FFFD.
    """
    decoder, pieces = codecs.getincrementaldecoder("utf-8")("replace"), []
    for text in texts:
        parts = _BYTE.split(text)  # every second part is the two hex digits of a byte
        raw = (bytes.fromhex(part) if place % 2 else part.encode("utf-8", "replace") for place, part in enumerate(parts))
        pieces.append(decoder.decode(b"".join(raw)))
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return pieces
