from __future__ import annotations

import math
from typing import Annotated

import torch

from specviz.acceptance.base import ACCEPTED, PASSED, REJECTED, Test, Verdict, follow_choice
from specviz.evidence import Evidence
from specviz.registry import Knob
from specviz.tree import TokenTree

lossless = False
greedy_only = False


def typical(
    tree: TokenTree,
    evidence: Evidence,
    *,
    epsilon: Annotated[float, Knob("Epsilon", "Largest probability that a token can be asked for.", 0.0, 1.0, 0.01)] = 0.09,
    delta: Annotated[float, Knob("Delta", "Scales the entropy limit delta * exp(-H).", 0.0, 1.0, 0.01)] = 0.3,
    bonus: Annotated[
        str,
        Knob("Bonus token", "sampled: drawn from the target; argmax: its most likely token (Medusa's default).", choices=("sampled", "argmax"), advanced=True),
    ] = "sampled",
) -> Verdict:
    """Accepts what the target finds plausible enough: p > min(epsilon, delta * exp(-H)). LOSSY above temperature 0.

    Source: Medusa, section 2.3.1; p and H are of softmax(logits / T). The longest path wins, then the largest summed log p.
    At temperature 0 it equals greedy.
    """
    if evidence.sampling.greedy:
        return follow_choice(tree, evidence, ("argmax", "not_argmax"))
    reached: dict[int, float] = {0: 0.0}  # node -> summed log p of its path
    tests: list[Test] = []
    for node in range(len(tree)):
        if node not in reached or not tree.children[node]:
            continue
        p = evidence.tempered(node)
        entropy = float(torch.special.entr(p).sum())
        limit = min(epsilon, delta * math.exp(-entropy))
        for child in tree.children[node]:
            own = float(p[tree.tokens[child]])
            if own > limit:
                reached[child] = reached[node] + math.log(own)
            tests.append(Test(child, ACCEPTED if own > limit else REJECTED, "typical" if own > limit else "below_typical_limit", p=own, limit=limit))
    end = max(reached, key=lambda node: (tree.depths[node], reached[node]))
    path = tree.path_to(end)
    tests = [
        test if test.verdict == REJECTED or test.node in path else Test(test.node, PASSED, "longer_path_won", p=test.p, limit=test.limit) for test in tests
    ]
    next_token = evidence.choice(end) if bonus == "sampled" else evidence.argmax[end]
    return Verdict(path, next_token, tuple(tests))
