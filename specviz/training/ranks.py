"""Measures which rank of a draft's q held the text's own token, at every position and depth of greedy text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specviz import drafters, shapes
from specviz.build import Spec
from specviz.drafters.base import Drafter, Feedback
from specviz.errors import BadInput
from specviz.registry import Bound, bind, discover, knobs
from specviz.sampling import Sampling, Uniform
from specviz.shapes.base import MAX_NODES, Growth
from specviz.training.greedy_text import GreedyText
from specviz.tree import TokenTree

DEPTH = 7  # deepest level that is looked at
OUTSIDE = -1  # the "rank" of a token that the draft vocabulary does not hold


@dataclass
class TruePath:
    """A shape that drafts nothing: it walks along the text that is to come and notes the rank of each of its tokens."""

    ahead: Sequence[int] = ()
    ranks: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, growth: Growth) -> TokenTree:
        node, found = 0, []
        for token in self.ahead[: growth.depth_limit]:
            node, rank = growth.follow(node, token)
            found.append(OUTSIDE if rank is None else rank)
        self.ranks.append(tuple(found))
        return growth.tree()


class RankReader:
    """A learned drafter that is shown true text: `drafter` is what `spec` and `knobs` name, with another shape."""

    def __init__(self, target: Any, spec: Spec, knobs: Mapping[str, Any] | None = None) -> None:
        cls: Any = _shaped(spec)
        self._path = TruePath()
        bound = bind(drafters, spec.drafter, {**spec.drafter_knobs, **(knobs or {})})
        self.drafter: Any = cls(target, shape=Bound("true_path", self._path), **bound.values)

    def read(self, text: GreedyText) -> list[tuple[int, ...]]:
        """Returns the ranks `[position][depth]` of the tokens after every token of the answer but the last, teacher-forced.

        At depth d the draft has seen the text's own tokens down to depth d - 1, as a node has whose parent was accepted. For
        heads that see one state only this is the accuracy of head d. Positions near the end have fewer depths.
        """
        self._path.ranks = []
        flow, known = None, 0
        for root in range(text.start, len(text.ids) - 1):
            self._path.ahead = text.ids[root + 1 : root + 1 + DEPTH]
            hidden = {tap: rows[known:root] for tap, rows in text.states.items()}
            seen = [Feedback(0, text.ids[: root + 1], (), hidden, None, Sampling(), Uniform(0), DEPTH)]
            if flow is None:
                flow = self.drafter.draft(seen)
                next(flow)
            else:
                flow.send(seen)  # as if nothing was accepted: the next position is one token on
            known = root
        if flow is not None:
            flow.close()
        return self._path.ranks


def _shaped(spec: Spec) -> type[Drafter]:
    known = discover(drafters)
    able = [name for name, cls in known.items() if cls.learned and cls.default_shape]
    if spec.drafter not in able:
        raise BadInput(f"{spec.drafter!r} has no trained head whose tree could be searched. There are: {', '.join(able)}.")
    if spec.shape or spec.shape_knobs:
        raise BadInput(f"The search makes the shape, so {str(spec)!r} cannot name one. Give the drafter alone, for example {spec.drafter}.")
    found: type[Drafter] = known[spec.drafter]
    return found


def static_trees() -> dict[str, tuple[tuple[int, ...], ...]]:
    """Returns the rank paths of every shape that has no knobs, as such a shape draws one and the same tree: the published ones."""
    return {name: rank_paths(shape) for name, shape in discover(shapes).items() if not knobs(shape)}


def rank_paths(shape: Any) -> tuple[tuple[int, ...], ...]:
    """Returns the rank paths of a static shape, read off a tree that it grows from a draft whose tokens are ranks."""
    falling = -torch.arange(float(MAX_NODES))
    tree: TokenTree = shape(Growth(0, lambda growth, nodes: falling.expand(len(nodes), -1), depth_limit=MAX_NODES))
    return tuple(tuple(tree.tokens[step] for step in tree.path_to(node)) for node in range(1, len(tree)))
