"""A training batch in a terminal: one line a record, the loss mask as colour, or as brackets where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from specviz.analysis.masked_batch import ASKED, FIRST, OUTSIDE, PROMPT, MaskedBatch, MaskedRecord
from specviz.analysis.words import visible
from specviz.commands.show import FAINT, REJECTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

COUNTS = "black on #56B4E9"
STYLES = {PROMPT: FAINT, FIRST: "", ASKED: COUNTS, OUTSIDE: f"underline {REJECTED}"}
BRACKETS = {PROMPT: ("", ""), FIRST: ("", ""), ASKED: ("[", "]"), OUTSIDE: ("{", "}")}
MEANING = {
    PROMPT: "prompt: given, not asked for",
    FIRST: "the answer's first token: the target gives it with the prompt, no head is asked",
    ASKED: "counts in the loss: a head that stands two tokens before it is asked for it",
    OUTSIDE: "outside the draft vocabulary: left out of the loss, always a miss when decoding",
}


def print_batch(out: Console, batch: MaskedBatch, text_of: Callable[[int], str]) -> None:
    """Prints every record, then a legend with counts; `text_of` gives a token's text, which is shown with nothing invisible."""
    marked = not out.is_terminal or out.no_color
    for record in batch.records:
        out.print(_line(record, text_of, marked), soft_wrap=True)
    out.print()
    for kind in (PROMPT, FIRST, ASKED, OUTSIDE):
        count = sum(one.kinds.count(kind) for one in batch.records)
        out.print(Text.assemble(_token("token", kind, marked), f"  {count} tokens. {MEANING[kind]}"), soft_wrap=True)
    for depth in batch.depths:
        asked = f"{depth.rows} rows count, {depth.outside} are left out for a draft vocabulary of {batch.draft_vocab}"
        out.print(f"draft depth {depth.depth}, the token {depth.depth + 1} ahead: {asked}", markup=False, soft_wrap=True)


def _line(record: MaskedRecord, text_of: Callable[[int], str], marked: bool) -> Text:
    """Neighbours of one kind share their colour or brackets only where that hides nothing: in colour; brackets go around each token."""
    return Text.assemble(*(_token(visible(text_of(token)), kind, marked) for token, kind in zip(record.tokens, record.kinds, strict=True)))


def _token(text: str, kind: str, marked: bool) -> Text:
    before, after = BRACKETS[kind]
    return Text(f"{before}{text}{after}") if marked else Text(text, STYLES[kind])
