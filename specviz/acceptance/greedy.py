from __future__ import annotations

from specviz.acceptance.base import Verdict, follow_choice
from specviz.errors import BadInput
from specviz.evidence import Evidence
from specviz.tree import TokenTree

lossless = True
greedy_only = True


def greedy(tree: TokenTree, evidence: Evidence) -> Verdict:
    """Accepts a token iff it is the target's most likely one. Lossless at temperature 0, where it gives plain greedy text."""
    if not evidence.sampling.greedy:
        raise BadInput(
            f"Rule 'greedy' works at temperature 0 only, got {evidence.sampling.temperature:g}. Use rule 'rejection', which is lossless at any temperature."
        )
    return follow_choice(tree, evidence, ("argmax", "not_argmax"))
