"""How runs look in a terminal: token text made safe to print, the numbers of a run as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specviz.analysis.summary import Summary, account, measured_speedup, summarise
from specviz.analysis.words import CONTROLS, harmless
from specviz.trace import Trace

# the colours of the page; the second channel is underline (accepted) and the mark in front of a node
ACCEPTED, REJECTED, BONUS, FAINT = "underline #0072B2", "#D55E00", "#009E73", "dim"
_LONE_BYTES = re.compile(r"(?:<0x[89A-F][0-9A-F]>)+")
_IN_LINE = CONTROLS | {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}


def quoted(text: str, longest: int = 1000) -> str:
    """Returns token text in one line, between quotes, with control characters spelled out: a terminal must never obey a token."""
    shown = text.translate(_IN_LINE)
    return f"'{shown}'" if len(shown) <= longest else f"'{shown[: longest - 1]}…'"


def flowing(text: str) -> str:
    """Returns text with its line ends and tabs, every other control character spelled out."""
    return harmless(text)


class Writer:
    """Streams token texts to a console, marked as accepted, bonus or plain; characters made of several tokens are joined first."""

    def __init__(self, console: Console) -> None:
        self._console, self._held = console, ""

    def write(self, text: str, style: str = "") -> None:
        """Prints one token's text; lone bytes wait until their character is complete."""
        text = self._held + text
        joined = _LONE_BYTES.sub(lambda match: _join(match.group()), text)
        self._held = text if _unfinished(joined) else ""
        if not self._held:
            self._console.print(Text(flowing(joined), style), end="", soft_wrap=True)

    def close(self) -> None:
        """Prints what still waits, as it is, and ends the line."""
        self._console.print(Text(flowing(self._held)), soft_wrap=True)


def _join(lone: str) -> str:
    """Returns the characters that lone bytes such as <0xE2><0x82><0xAC> make up, or them as they are."""
    try:
        return bytes(int(byte, 16) for byte in re.findall(r"<0x(..)>", lone)).decode("utf-8")
    except UnicodeDecodeError:
        return lone


def _unfinished(text: str) -> bool:
    match = _LONE_BYTES.search(text)
    return match is not None and match.end() == len(text) and len(match.group()) < 4 * len("<0xE2>")


def number(value: float | None, digits: int = 2) -> str:
    """Returns a number for a table cell, a dash for what is not known."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1000 * seconds:.1f}"


def grid(title: str = "") -> Table:
    """Returns the table style of every verb."""
    return Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)


def print_numbers(console: Console, trace: Trace, row: int = 0) -> None:
    """Prints the numbers of one row: a line of the main ones, then acceptance by depth and time by phase."""
    numbers, end = summarise(trace, row), trace.finished(row)
    speedup = measured_speedup(trace, row)
    parts = [
        f"{number(numbers.tau)} tokens per target forward",
        f"{numbers.new_tokens} tokens in {numbers.rounds} rounds",
        f"{number(numbers.tokens_per_second, 1)} tokens/s decoding",
        *([f"{speedup:.2f}x plain decoding"] if speedup else []),
        *([f"ended by {end.reason}"] if end else ["not finished"]),
    ]
    console.print(" · ".join(parts), style="bold", markup=False)
    if numbers.by_depth.tested:
        console.print(depth_table(numbers))
    console.print(time_table(numbers))


def depth_table(numbers: Summary) -> Table:
    """Returns acceptance by depth: conditional, unconditional and the counts behind them."""
    table, depths = grid("Acceptance by depth"), numbers.by_depth
    for name in ("depth", "given the parent", "of all rounds", "accepted", "tested"):
        table.add_column(name, justify="right")
    for depth, (given, alone, accepted, tested) in enumerate(zip(depths.conditional, depths.unconditional, depths.accepted, depths.tested, strict=True), 1):
        table.add_row(str(depth), percent(given), percent(alone), str(accepted), str(tested))
    return table


def time_table(numbers: Summary) -> Table:
    """Returns seconds by phase, in all and per round."""
    table = grid("Time")
    table.add_column("phase")
    for name in ("seconds", "ms per round", "share of decoding"):
        table.add_column(name, justify="right")
    for name in ("draft", "verify", "accept", "commit"):
        value = numbers.seconds.get(name) or 0.0
        each = value / numbers.rounds if numbers.rounds else None
        table.add_row(name, number(value, 3), milliseconds(each), percent(value / numbers.decoding_seconds if numbers.decoding_seconds else None))
    for name in ("prefill", "record", "total", "wall"):
        table.add_row(Text(name, FAINT), Text(number(numbers.seconds.get(name), 3), FAINT))
    return table


def describe(record: Mapping[str, Any] | None) -> str:
    """Returns a drafter, rule or sampling record in one line: name, shape and knobs."""
    if not isinstance(record, Mapping):
        return str(record)
    shape, given = record.get("shape"), record.get("knobs")
    knobs = ", ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, Mapping) else ""
    return str(record.get("name", "?")) + (f" ({knobs})" if knobs else "") + (f" on {describe(shape)}" if isinstance(shape, Mapping) else "")


def meta_lines(trace: Trace, row: int = 0) -> Sequence[tuple[str, str]]:
    """Returns what a run was, as (name, value) lines."""
    told = account(trace, row)
    rule, device = told["rule"], told["device"]
    lossless = rule.get("lossless") if isinstance(rule, Mapping) else None
    sampling, versions = told["sampling"], told["versions"]
    return (
        ("target", _target(told["target"])),
        ("drafter", describe(told["drafter"])),
        ("rule", describe(rule) + ("" if lossless is None else ", lossless" if lossless else ", lossy")),
        ("sampling", _pairs(sampling)),
        ("device", f"{device.get('name', '?') if isinstance(device, Mapping) else device}, {told['dtype']}"),
        ("versions", _pairs(versions)),
    )


def _target(record: Any) -> str:
    mark = record.get("fingerprint") if isinstance(record, Mapping) else None
    weights = mark.get("weights") if isinstance(mark, Mapping) else None
    return f"{record.get('name', '?') if isinstance(record, Mapping) else record}" + (f", weights {weights}" if weights else "")


def _pairs(record: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in record.items()) if isinstance(record, Mapping) else str(record)
