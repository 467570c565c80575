"""Growth and every shape on a made-up draft of 40 tokens whose distribution depends on the whole path."""

from __future__ import annotations

import heapq
import math
from random import Random

import pytest
import torch
from trees import Scripted

from specviz import shapes
from specviz.errors import BadInput
from specviz.registry import bind, discover
from specviz.sampling import Sampling, Uniform, warp
from specviz.shapes.base import MAX_NODES, Growth, Sampler
from specviz.shapes.cartesian import cartesian, parse_widths
from specviz.shapes.chain import chain
from specviz.shapes.dynamic import dynamic
from specviz.shapes.eagle_25 import eagle_25
from specviz.shapes.medusa_63 import medusa_63
from specviz.tree import TokenTree

VOCAB = 40
SELECTING = {"dynamic"}  # shapes that choose among drafted tokens, which drawn ones do not allow


def log_q(tokens: list[int], scale: float = 2.0) -> torch.Tensor:
    seed = 0
    for token in tokens:
        seed = seed * 1_000_003 + token + 1 & 0xFFFFFFFF
    return (torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).log_softmax(-1)


class Draft:
    """A step that counts its calls."""

    def __init__(self, scale: float = 2.0) -> None:
        self.scale, self.calls = scale, []

    def __call__(self, growth: Growth, nodes) -> torch.Tensor:
        self.calls.append(list(nodes))
        return torch.stack([log_q([growth.tokens[n] for n in growth.path_to(node)], self.scale) for node in nodes])


def growth(draft: Draft | None = None, depth_limit: int = 20, root: int = 7, **more) -> Growth:
    return Growth(root, draft or Draft(), depth_limit=depth_limit, **more)


def sampler(seed: int = 0, **sampling) -> Sampler:
    return Sampler(Sampling(1.0, **sampling), Uniform(seed), 5, VOCAB)


def path_tokens(tree: TokenTree, node: int) -> list[int]:
    return [tree.tokens[n] for n in (0, *tree.path_to(node))]


def check_scores(tree: TokenTree) -> None:
    """Each node's score is the draft's probability of its token after its path."""
    for node in range(1, len(tree)):
        q = log_q(path_tokens(tree, tree.parents[node])).exp()
        assert tree.scores[node] == pytest.approx(float(q[tree.tokens[node]]))


@pytest.mark.parametrize("name", list(discover(shapes)))
@pytest.mark.parametrize("depth_limit", [0, 1, 2, 20])
def test_every_shape_keeps_to_the_limits(name, depth_limit):
    shape = bind(shapes, name)
    tree = shape(growth(depth_limit=depth_limit))
    assert tree.tokens[0] == 7
    assert len(tree) <= MAX_NODES
    assert max(tree.depths) <= depth_limit
    assert (len(tree) > 1) == (depth_limit > 0)
    assert all(len({tree.tokens[kid] for kid in kids}) == len(kids) for kids in tree.children), "siblings repeat a token"
    check_scores(tree)
    tops = {top.node: top for top in tree.tops}
    assert all(node in tops for node in range(len(tree)) if tree.children[node])
    for top in tops.values():
        q = log_q(path_tokens(tree, top.node)).exp()
        assert list(top.tokens) == q.topk(5).indices.tolist()
        assert list(top.q) == pytest.approx(q.topk(5).values.tolist())


@pytest.mark.parametrize("name", list(discover(shapes)))
def test_every_shape_draws_all_its_children_or_refuses_to(name):
    shape = bind(shapes, name)
    if name in SELECTING:
        with pytest.raises(BadInput, match="deterministic children"):
            shape(growth(sampler=sampler()))
        return
    tree = shape(growth(sampler=sampler()))
    drawn = sorted(child for group in tree.draws for child in group.children)
    assert drawn == list(range(1, len(tree)))
    for group in tree.draws:
        assert torch.allclose(group.q, log_q(path_tokens(tree, group.parent)).exp())
        assert not group.replace
    check_scores(tree)


@pytest.mark.parametrize("name", list(discover(shapes)))
def test_every_shape_fits_a_tiny_draft_vocabulary(name):
    small = lambda growth, nodes: torch.tensor([[0.6, 0.3, 0.1]]).log().expand(len(nodes), 3)
    tree = bind(shapes, name)(Growth(1, small, depth_limit=3, vocabulary=torch.tensor([30, 10, 20])))
    assert set(tree.tokens[1:]) <= {10, 20, 30}
    assert max(map(len, tree.children)) <= 3


def test_a_chain_is_the_likeliest_token_at_every_step():
    tree = chain(growth(), depth=6)
    assert tree.parents == tuple(range(-1, 6))
    assert all(tree.tokens[n] == int(log_q(path_tokens(tree, n - 1)).argmax()) for n in range(1, 7))


def test_cartesian_has_the_widths_it_is_given():
    draft = Draft()
    tree = cartesian(growth(draft), widths="3-2-1")
    assert [tree.depths.count(depth) for depth in range(4)] == [1, 3, 6, 6]
    assert [len(call) for call in draft.calls] == [1, 3, 6]  # one step a depth


@pytest.mark.parametrize(("text", "widths"), [("3-2-1", (3, 2, 1)), (" 3, 2 ,1", (3, 2, 1)), ("4x4", (4, 4)), ("1" + "-1" * 15, (1,) * 16), ("255", (255,))])
def test_widths_are_read(text, widths):
    assert parse_widths(text) == widths


@pytest.mark.parametrize("text", ["", "-", "a-b", "3-0", "3--1-x2z", "-1-2.5", "²", "1" + "-1" * 16, "256", "16-16", "9" * 5000, "1000"])
def test_widths_that_make_no_tree_are_refused(text):
    with pytest.raises(BadInput, match="widths="):
        parse_widths(text)


@pytest.mark.parametrize(("shape", "nodes", "depth", "first"), [(medusa_63, 64, 4, 10), (eagle_25, 26, 5, 4)])
def test_the_published_trees(shape, nodes, depth, first):
    draft = Draft()
    tree = shape(growth(draft))
    assert (len(tree), max(tree.depths), tree.depths.count(1)) == (nodes, depth, first)
    assert len(draft.calls) == depth  # one step a depth
    for node in range(1, nodes):  # ranks are places in the draft's order, also where children are left out
        q = log_q(path_tokens(tree, tree.parents[node]))
        kids = [tree.tokens[kid] for kid in tree.children[tree.parents[node]]]
        assert kids == [token for token in q.argsort(descending=True).tolist() if token in kids]


def test_the_medusa_tree_prefers_early_ranks():
    tree = medusa_63(growth())
    assert max(tree.ranks) == 9
    assert len(tree.children[1]) == 10


def expected_dynamic(nodes: int, depth: int, top_k: int) -> set[tuple[int, ...]]:
    """EAGLE-2 as it is written: expand all the best of each depth, then keep the best overall. Paths of tokens."""
    pool, frontier = {(7,): 0.0}, [(7,)]
    for _ in range(depth):
        kids = {}
        for path in frontier:
            q = log_q(list(path))
            kids |= {(*path, token): pool[path] + float(q[token]) for token in q.topk(top_k).indices.tolist()}
        pool |= kids
        frontier = heapq.nlargest(top_k, kids, key=kids.get)
    return set(heapq.nlargest(nodes, pool, key=pool.get))


@pytest.mark.parametrize(("nodes", "depth", "top_k"), [(24, 5, 8), (10, 3, 2), (2, 1, 1), (60, 6, 10), (128, 4, 4), (16, 8, 3)])
def test_dynamic_keeps_the_best_of_what_was_drafted(nodes, depth, top_k):
    tree = dynamic(growth(), nodes=nodes, depth=depth, top_k=top_k)
    found = {tuple(path_tokens(tree, node)) for node in range(len(tree))}
    assert found == expected_dynamic(nodes, depth, top_k)
    assert len(tree) <= nodes


def test_dynamic_does_not_expand_what_cannot_enter():
    careful, draft = Draft(scale=8.0), Draft(scale=8.0)  # a sure draft: few nodes are worth expanding
    dynamic(growth(careful), nodes=6, depth=6, top_k=4)
    dynamic(growth(draft), nodes=128, depth=6, top_k=4)
    assert sum(map(len, careful.calls)) < sum(map(len, draft.calls))


def test_dynamic_drafts_no_level_below_a_path_that_is_hardly_ever_reached():
    never, always = Draft(), Draft()
    whole = dynamic(growth(never), nodes=8, depth=6, top_k=3)
    assert dynamic(growth(always), nodes=8, depth=6, top_k=3, stop_below=1e-9).tokens == whole.tokens
    assert always.calls == never.calls
    for limit in (0.05, 0.2, 0.5, 0.9):
        draft = Draft()
        grown = growth(draft)
        dynamic(grown, nodes=8, depth=6, top_k=3, stop_below=limit)
        levels = [max(math.exp(grown.totals[n]) for n, depth in enumerate(grown.depths) if depth == level) for level in range(1, max(grown.depths) + 1)]
        assert all(best >= limit for best in levels[:-1])
        assert levels[-1] < limit or len(levels) == len(never.calls)
    assert len(draft.calls) < len(never.calls)


def test_dynamic_lists_what_it_cut_best_first():
    tree = dynamic(growth(), nodes=8, depth=3, top_k=4, show_pruned=10)
    scores = [cut.score for cut in tree.pruned]
    assert len(scores) == 10
    assert scores == sorted(scores, reverse=True)
    weakest = min(math.prod(tree.scores[n] for n in tree.path_to(node)) for node in range(len(tree)))
    assert scores[0] <= weakest
    assert all(-1 <= cut.parent < len(tree) for cut in tree.pruned)
    assert dict(tree.note)["drafted"] == len(tree) - 1 + dict(tree.note)["pruned"]
    assert dynamic(growth(), nodes=8, depth=3, top_k=4, show_pruned=0).pruned == ()


def test_exact_ties_stay_closed_under_ancestors():
    certain = lambda growth, nodes: torch.tensor([[0.0, -math.inf, -math.inf]]).expand(len(nodes), 3)
    tree = dynamic(Growth(1, certain, depth_limit=9), nodes=8, depth=6, top_k=3)
    assert tree.parents[0] == -1  # a TokenTree checks the rest


def test_drawn_children_are_distinct_and_follow_q():
    counts = torch.zeros(VOCAB)
    q = log_q([7]).exp()
    for seed in range(4000):
        tree = chain(growth(sampler=sampler(seed)), depth=1)
        counts[tree.tokens[1]] += 1
    assert float((counts / 4000 - q).abs().sum()) / 2 < 0.05
    tree = cartesian(growth(sampler=sampler()), widths="8")
    assert len(set(tree.tokens[1:])) == 8


def test_drawing_is_from_the_warped_q_and_stops_when_it_is_used_up():
    tree = cartesian(growth(sampler=sampler(top_k=3)), widths="8")
    assert len(tree) == 4
    assert torch.allclose(tree.draws[0].q, warp(log_q([7])[None], Sampling(1.0, top_k=3))[0])
    check_scores(tree)  # scores stay the unwarped q


def test_the_order_of_drawing_is_the_order_of_nodes():
    """The second child is drawn from q without the first: u = 0.5 twice gives two different tokens."""
    q = torch.tensor([[0.2, 0.5, 0.3]]).log()
    uniform = Scripted({(6, "draft", 0): 0.5, (6, "draft", 1): 0.5})
    made = Growth(0, lambda growth, nodes: q, depth_limit=2, sampler=Sampler(Sampling(1.0), uniform, 5, 3))
    tree = cartesian(made, widths="2")
    assert tree.tokens[1:] == (1, 2)  # left after 1: [.2, 0, .3], half of it lies in token 2
    assert tree.draws[0].children == (1, 2)


def test_a_reduced_draft_vocabulary_is_mapped_to_the_targets_ids():
    vocabulary, q = torch.tensor([11, 3, 30]), torch.tensor([[0.1, 0.7, 0.2]])
    made = Growth(0, lambda growth, nodes: q.log(), depth_limit=1, vocabulary=vocabulary, sampler=sampler())
    tree = cartesian(made, widths="3")
    assert set(tree.tokens[1:]) == {11, 3, 30}
    assert tree.tops[0].tokens == (3, 30, 11)
    full = tree.draws[0].q
    assert (full.shape, float(full[3]), float(full.sum())) == ((VOCAB,), pytest.approx(0.7), pytest.approx(1.0))


def test_a_static_tree_of_drawn_children_draws_as_many_as_it_lists():
    tree = eagle_25(growth(sampler=sampler(3)))
    assert [len(tree.children[node]) for node in range(5)] == [4, 3, 2, 2, 1]
    assert len(tree) == 26


def test_too_much_is_refused():
    made, level = growth(), [0]
    with pytest.raises(BadInput, match="drafts more than"):
        for _ in range(4):
            level = [kid for kids in made.expand(level, 40) for kid in kids]
    many = growth()
    many.expand(many.expand([0], 20)[0], 20)
    with pytest.raises(BadInput, match="421 nodes, more than 256"):
        many.tree()


def test_trees_of_random_subsets_keep_their_numbers():
    rng, made = Random(0), growth()
    made.expand(made.expand([0], 4)[0], 3)
    for _ in range(20):
        keep = {0}
        for node in range(1, len(made.tokens)):
            if made.parents[node] in keep and rng.random() < 0.6:
                keep.add(node)
        tree = made.tree(keep, show_pruned=3)
        check_scores(tree)
        assert len(tree) == len(keep)
        assert len(tree.pruned) == min(3, len(made.tokens) - len(keep))
