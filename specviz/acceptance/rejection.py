from __future__ import annotations

import torch

from specviz.acceptance.base import ACCEPTED, REJECTED, Test, Verdict, follow_choice
from specviz.evidence import Evidence
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
    node, path, tests = 0, list[int](), list[Test]()
    while True:
        below, residual, group = _test_children(tree, evidence, node, draws.get(node))
        tests += group
        if below < 0:
            bonus = evidence.uniform.draw(residual, evidence.position_below(node), "token")
            return Verdict(tuple(path), bonus, tuple(tests), "residual" if group else "target")
        path.append(below)
        node = below


def _test_children(tree: TokenTree, evidence: Evidence, node: int, group: Draw | None) -> tuple[int, torch.Tensor, list[Test]]:
    """Tests the children of an accepted node in order; returns (accepted child or -1, what is left of p, the tests)."""
    residual, tests = evidence.warped(node), list[Test]()
    q = None if group is None else group.q.to(residual.device)
    for place, child in enumerate(tree.children[node]):
        token = tree.tokens[child]
        draft = q if group is not None and child in group.children else None  # None: a deterministic child
        p_left, q_left = float(residual[token]), 1.0 if draft is None else float(draft[token])
        limit = min(1.0, p_left / q_left) if q_left > 0.0 else 0.0
        u = evidence.uniform(evidence.position_below(node), "accept", place)
        took = u < limit
        tests.append(
            Test(
                child, ACCEPTED if took else REJECTED, "below_limit" if took else "above_limit", evidence.probability(node, token),
                None if draft is None or group is None else float(group.q[token]), p_left, None if draft is None else q_left, limit, u,
            )
        )  # fmt: skip
        if took:
            return child, residual, tests
        if draft is None or group is None:
            residual = _without(residual, token)
        else:
            residual = _normalise((residual - draft).clamp_min(0.0), residual)
            q = draft if group.replace else _without(draft, token)  # the next sibling was drawn from q without this token
    return -1, residual, tests


def _without(p: torch.Tensor, token: int) -> torch.Tensor:
    """Returns p with `token` ruled out, renormalised."""
    return _normalise(p.index_fill(0, torch.tensor([token], device=p.device), 0.0), p)


def _normalise(p: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """Returns p / sum(p); rounding can leave no mass at all, which exact arithmetic cannot: then what was there before."""
    total = p.sum()
    return p / total if float(total) > 0.0 else otherwise
