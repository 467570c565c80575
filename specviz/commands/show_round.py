"""One round in a terminal: its tree as indented text with a mark, p and q for every node, then path and bonus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specviz.commands.show import ACCEPTED, BONUS, FAINT, REJECTED, flowing, grid, milliseconds, quoted
from specviz.trace import Round

MARKS = {"root": " ", "accepted": "+", "rejected": "x", "passed_not_chosen": "=", "untested": ".", "unreached": ".", "passenger": ">"}
LONGEST = 20  # characters of a token in the tree
STYLES = {"accepted": ACCEPTED, "rejected": REJECTED, "passed_not_chosen": "", "root": ""}


def print_round(console: Console, one: Round, number: int, strings: Mapping[int, str]) -> None:
    """Prints one round; `number` counts from 1."""
    drafted, verified = one.drafted, one.verified
    took, nodes = len(verified.path), len(drafted.tokens)
    seconds = ", ".join(f"{name} {milliseconds(verified.seconds.get(name))} ms" for name in ("draft", "verify", "accept", "commit") if name in verified.seconds)
    console.print(Text(f"Round {number}: {_count(nodes, 'node')}, {took} accepted, {_count(len(verified.emitted), 'token')} ({seconds})", "bold"))
    noted = ", ".join(f"{key} {value}" for key, value in drafted.note.items() if value is not None)
    if noted:
        console.print(Text(flowing(f"note: {noted}"), FAINT))
    console.print(tree_table(one, strings))
    emitted = " ".join(quoted(strings.get(token, "")) for token in verified.emitted)
    source = {"residual": "drawn from what rejection left over", "target": "the target's own choice"}.get(verified.bonus_source, flowing(verified.bonus_source))
    bonus = "none, the round was cut" if verified.bonus is None else f"{quoted(strings.get(verified.bonus, ''))}, {source}"
    console.print(Text.assemble("emitted ", emitted, "; bonus: ", (bonus, BONUS)))
    if drafted.pruned:
        best = ", ".join(f"{quoted(strings.get(token, ''))} {_three(score)}" for token, _, score in drafted.pruned[:5])
        console.print(Text(f"cut before verification: {len(drafted.pruned)} shown in the trace, best {best}", FAINT))
    console.print()


def tree_table(one: Round, strings: Mapping[int, str]) -> Table:
    """Returns the tree, depth first in draft order: mark, token, draft confidence, target p, its rank, and why."""
    table = grid()
    table.add_column("")
    table.add_column("token", no_wrap=True, overflow="ellipsis")
    for name in ("draft q", "target p", "rank"):
        table.add_column(name, justify="right")
    table.add_column("why")
    tests = one.verified.tests
    reasons = dict(zip(tests.get("node", ()), tests.get("reason", ()), strict=False))
    for node, guides in _walk(one):
        verdict = one.verified.verdicts[node] if one.verified.verdicts else "root"
        style = STYLES.get(verdict, FAINT)
        cells = [_three(one.drafted.scores[node]), _three(_at(one.verified.p, node)), _whole(_at(one.verified.target_rank, node))]
        why = "" if verdict == "root" else f"{verdict}{f' ({reasons[node]})' if node in reasons else ''}"
        table.add_row(
            MARKS.get(verdict, "?"),
            Text.assemble((guides, FAINT), (quoted(strings.get(one.drafted.tokens[node], ""), LONGEST), style)),
            *cells,
            Text(flowing(why), FAINT),
        )
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _walk(one: Round) -> Iterator[tuple[int, str]]:
    """Yields (node, the guides in front of it), every parent before its children."""
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(one.drafted.parents):
        below.setdefault(parent, []).append(node)
    stack = [(0, "", "")]
    while stack:
        node, guides, indent = stack.pop()
        yield node, guides
        children = below.get(node, [])
        for child in reversed(children):
            last = child == children[-1]
            stack.append((child, indent + ("└" if last else "├"), indent + (" " if last else "│")))


def _at(column: object, node: int) -> float | None:
    return column[node] if isinstance(column, (list, tuple)) and node < len(column) else None


def _three(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
