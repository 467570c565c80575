from __future__ import annotations

import torch

from specviz.acceptance.base import ACCEPTED, REJECTED, Test, Verdict, follow_choice
from specviz.evidence import Evidence
from specviz.sampling import draw
from specviz.tree import Draw, TokenTree

lossless = True
greedy_only = False


def rejection(tree: TokenTree, evidence: Evidence) -> Verdict:
    """Accepts a token with probability min(1, p/q), corrects what is left on rejection. Lossless at any temperature.

    Source: Leviathan et al. and Chen et al. for a chain; SpecInfer (section 4.3) and EAGLE for trees. Deterministic children
    count as q = 1: accepted with the target's own (residual) probability.
    """
    if evidence.sampling.greedy or not tree.draws:
        return follow_choice(tree, evidence, ("argmax", "not_argmax") if evidence.sampling.greedy else ("drawn", "not_drawn"))
    draws = {draw.parent: draw for draw in tree.draws}
    node, path, tests = 0, [], []
    while True:
        below, residual, group = _test_children(tree, evidence, node, draws.get(node))
        tests += group
        if below < 0:
            position = evidence.position_below(node)
            source = "residual" if any(test.q is not None for test in group) else "target"
            return Verdict(tuple(path), draw(residual, evidence.uniform(position, "token")), tuple(tests), source)
        path.append(below)
        node = below


def _test_children(tree: TokenTree, evidence: Evidence, node: int, group: Draw | None) -> tuple[int, torch.Tensor, list[Test]]:
    """Tests the children of an accepted node in order; returns (accepted child or -1, what is left of p, the tests)."""
    residual, tests = evidence.warped(node).clone(), []
    q = None if group is None else group.q.to(residual.device).clone()
    position = evidence.position_below(node)
    for place, child in enumerate(tree.children[node]):
        token = tree.tokens[child]
        sampled = group is not None and child in group.children
        p_left, p = float(residual[token]), evidence.probability(node, token)
        q_left = float(q[token]) if sampled and q is not None else 1.0
        limit = min(1.0, p_left / q_left) if q_left > 0.0 else 0.0
        u = evidence.uniform(position, "accept", place)
        took = u < limit
        q_full = float(group.q[token]) if sampled and group is not None else None
        tests.append(Test(child, ACCEPTED if took else REJECTED, "below_limit" if took else "above_limit", p, q_full, p_left, q_left if sampled else None, limit, u))
        if took:
            return child, residual, tests
        if sampled and q is not None and group is not None:
            residual = _normalise((residual - q).clamp_min(0.0), residual)
            if not group.replace:  # the next sibling was drawn from q without this token
                q[token] = 0.0
                q = _normalise(q, q)
        else:
            residual = residual.index_fill(0, torch.tensor([token], device=residual.device), 0.0)
            residual = _normalise(residual, evidence.warped(node))
    return -1, residual, tests


def _normalise(p: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """Returns p / sum(p); rounding can leave no mass at all, which exact arithmetic cannot: then what was there before."""
    total = p.sum()
    return p / total if float(total) > 0.0 else otherwise
