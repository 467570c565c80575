"""What a rule returns, and what every rule shares: walking down the tree and naming what happened to each node.

A rule's file says with module constants whether it is `lossless` and whether it works only `greedy_only` (temperature 0).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specviz.evidence import Evidence
from specviz.registry import Bound
from specviz.tree import TokenTree

ACCEPTED, REJECTED, UNTESTED, UNREACHED = "accepted", "rejected", "untested", "unreached"
PASSED, PASSENGER, ROOT = "passed_not_chosen", "passenger", "root"
VERDICTS = (ROOT, ACCEPTED, REJECTED, UNTESTED, UNREACHED, PASSED, PASSENGER)


@dataclass(frozen=True)
class Test:
    """One decision: the numbers that the rule used for a node, its verdict and the reason.

    p and q are target and draft probability as the rule read them (q None: deterministic child), residual_* what was left of
    both at that moment, `limit` what the decision compared with `uniform` (or p with `limit`, for thresholds).
    """

    node: int
    verdict: str
    reason: str
    p: float | None = None
    q: float | None = None
    residual_p: float | None = None
    residual_q: float | None = None
    limit: float | None = None
    uniform: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What a rule decided: accepted nodes in order, the next token (the bonus), where it came from, and every test made."""

    path: tuple[int, ...]
    next_token: int
    tests: tuple[Test, ...]
    next_source: str = "target"  # "target": the target's own choice; "residual": drawn from what rejection left over


Rule = Callable[..., Verdict]


def is_lossless(rule: Bound | Rule) -> bool:
    """True when the rule leaves the target's distribution (at temperature 0: its tokens) unchanged."""
    return bool(_constant(rule, "lossless"))


def is_greedy_only(rule: Bound | Rule) -> bool:
    """True when the rule is defined at temperature 0 alone."""
    return bool(_constant(rule, "greedy_only"))


def _constant(rule: Any, name: str) -> Any:
    function = rule.thing if isinstance(rule, Bound) else rule
    return getattr(sys.modules[function.__module__], name, False)


def follow_choice(tree: TokenTree, evidence: Evidence, reasons: tuple[str, str]) -> Verdict:
    """Descends to the child that equals the target's own choice, as long as there is one.

    This is exact for deterministic children at any temperature: the choice is one draw x ~ p, and a child is accepted iff it is x
    (equal to testing siblings in order against the renormalised rest). `reasons` name acceptance and rejection.
    """
    node, path, tests = 0, list[int](), list[Test]()
    while True:
        wanted, below = evidence.choice(node), -1
        u = None if evidence.sampling.greedy else evidence.uniform(evidence.position_below(node), "token")
        left = 1.0
        for child in tree.children[node]:
            p = evidence.probability(node, tree.tokens[child])
            took = tree.tokens[child] == wanted
            residual = min(1.0, p / left) if left > 0.0 else 0.0
            tests.append(Test(child, ACCEPTED if took else REJECTED, reasons[0 if took else 1], p=p, residual_p=residual, limit=residual, uniform=u))
            if took:
                below = child
                break
            left -= p
        if below < 0:
            return Verdict(tuple(path), wanted, tuple(tests))
        path.append(below)
        node = below


def verdict_column(tree: TokenTree, verdict: Verdict) -> tuple[str, ...]:
    """Returns one verdict per node: those the rule tested, and for the rest why they were never tested."""
    column = [UNREACHED] * len(tree)
    column[0] = ROOT
    for test in verdict.tests:
        column[test.node] = test.verdict
    for node in range(1, len(tree)):
        if tree.candidate is not None and not tree.candidate[node]:
            column[node] = PASSENGER
        elif column[node] == UNREACHED and (tree.parents[node] == 0 or tree.parents[node] in verdict.path):
            column[node] = UNTESTED  # its parent was accepted, so only an earlier sibling can have come first
    return tuple(column)
