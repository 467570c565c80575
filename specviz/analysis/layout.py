"""Tidy left-to-right layout of a candidate tree: one column per depth, one row per leaf, no crossings."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

LEAF = 16  # pixels that a leaf's row needs at least to stay readable


@dataclass(frozen=True)
class Layout:
    """Where nodes lie: `column` is the depth, `row` counts leaf rows from 0 (None: folded away), `rows` is how many there are."""

    column: tuple[int, ...]
    row: tuple[float | None, ...]
    rows: int

    def place(self, node: int, *, width: float, height: float) -> tuple[float, float] | None:
        """Returns the middle of a node in pixels, None when it is folded away. Raises ValueError when a row is lower than LEAF."""
        if height < LEAF:
            raise ValueError(f"A row of {height} px is too low to read. Expected at least {LEAF}.")
        row = self.row[node]
        return None if row is None else ((self.column[node] + 0.5) * width, (row + 0.5) * height)


def layout(parents: Sequence[int], folded: Container[int] = ()) -> Layout:
    """Returns the layout of the tree given by `parents` (-1 for node 0, parents first).

    Leaves take consecutive rows in child order; a parent stands midway between its first and last child. What hangs below a
    folded node has no place. The player mirrors these rules in the browser, where people fold; a test holds both together.
    """
    children: list[list[int]] = [[] for _ in parents]
    column = [0] * len(parents)
    for node in range(1, len(parents)):
        children[parents[node]].append(node)
        column[node] = column[parents[node]] + 1
    row: list[float | None] = [None] * len(parents)
    rows, preorder, stack = 0, list[int](), [0]
    while stack:
        node = stack.pop()
        preorder.append(node)
        if not children[node] or node in folded:
            row[node] = float(rows)
            rows += 1
        else:
            stack += reversed(children[node])
    for node in reversed(preorder):
        if row[node] is None:
            first, last = row[children[node][0]], row[children[node][-1]]
            assert first is not None
            assert last is not None
            row[node] = (first + last) / 2
    return Layout(tuple(column), tuple(row), rows)
