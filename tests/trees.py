"""Random trees, the slow obvious way to get the logits at their nodes, and evidence made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import torch

from specviz.evidence import Evidence
from specviz.sampling import Sampling, Uniform
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


class Scripted(Uniform):
    """Uniforms written down by a test; asking for one that is not there is an error."""

    def __init__(self, values: Mapping[tuple[int, str, int], float]) -> None:
        super().__init__(0)
        self.values = values

    def __call__(self, position: int, purpose: str, index: int = 0) -> float:
        return self.values[position, purpose, index]


def evidence_of(tree: TokenTree, rows: Mapping[int, Sequence[float]], temperature: float = 1.0, uniforms: Mapping | None = None, **sampling: float) -> Evidence:
    """Returns evidence in which the target gives `rows[node]` after a node (uniform where nothing is said); the root is at position 0."""
    width = len(next(iter(rows.values())))
    table = torch.tensor([rows.get(node, [1.0 / width] * width) for node in range(len(tree))], dtype=torch.float64)
    return Evidence(tree, table.log(), Sampling(temperature, **sampling), Scripted(uniforms or {}), 0)
