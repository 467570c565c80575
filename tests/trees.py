"""Random trees, and the slow obvious way to get the logits at their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch

from specviz.target import Target
from specviz.tree import TokenTree


def random_tree(rng: Random, size: int, vocab_size: int, depth: int = 8) -> TokenTree:
    """Returns a tree of `size` nodes, at most `depth` deep, siblings distinct."""
    tokens, parents, depths = [rng.randrange(vocab_size)], [-1], [0]
    taken: set[tuple[int, int]] = set()
    while len(tokens) < size:
        parent, token = rng.randrange(len(tokens)), rng.randrange(vocab_size)
        if depths[parent] < depth and (parent, token) not in taken:
            taken.add((parent, token))
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
    return TokenTree(tuple(tokens), tuple(parents))


def random_path(rng: Random, tree: TokenTree) -> tuple[int, ...]:
    """Returns a path from below the root to some node, as a rule would accept it."""
    return tree.path_to(rng.randrange(len(tree)))


@torch.inference_mode()
def plain_logits(target: Target, prefix: Sequence[int], tree: TokenTree, batch: int = 32) -> torch.Tensor:
    """Returns the logits [nodes, vocab] of cacheless forwards, one of each node's whole path (right-padded, so causality hides the padding)."""
    paths = [[*prefix, tree.tokens[0], *(tree.tokens[n] for n in tree.path_to(node))] for node in range(len(tree))]
    out = []
    for start in range(0, len(paths), batch):
        group = paths[start : start + batch]
        width = max(map(len, group))
        ids = torch.tensor([path + [0] * (width - len(path)) for path in group])
        logits = target.model(input_ids=ids, use_cache=False).logits
        out += [logits[i, len(path) - 1] for i, path in enumerate(group)]
    return torch.stack(out)
