from __future__ import annotations

import pytest
import torch

from specviz.cache import TreeCache
from specviz.errors import CacheFull

LAYERS, HEADS, WIDTH = 2, 3, 4


def numbered(rows: int, first: int, count: int) -> torch.Tensor:
    """Keys whose value is their slot's number, so that a moved row is recognised."""
    return torch.arange(first, first + count).float()[None, None, :, None].expand(rows, HEADS, count, WIDTH)


def filled(batch: int = 1, capacity: int = 20, prefix: int = 5, nodes: int = 6) -> TreeCache:
    """A cache with `prefix` committed slots in each row, and a verified tree of `nodes` behind them."""
    cache = TreeCache(LAYERS, batch, capacity)
    for row in range(batch):
        cache.begin([row], prefix, torch.device("cpu"))
        for layer in cache.layers:
            layer.update(numbered(1, 0, prefix), -numbered(1, 0, prefix))
        cache.commit(row, range(prefix))
    cache.begin(range(batch), nodes, torch.device("cpu"))
    for layer in cache.layers:
        layer.update(numbered(batch, 100, nodes), -numbered(batch, 100, nodes))
    return cache


def row_of(cache: TreeCache, row: int = 0, layer: int = 1) -> list[float]:
    return cache.buffer[layer, 0, row, 2, :, 3].tolist()


@pytest.mark.parametrize("path", [(0,), (0, 1), (0, 1, 2, 3, 4, 5), (0, 2), (0, 1, 3, 5), (0, 5), ()])
def test_commit_moves_the_accepted_rows_to_the_front_and_nothing_else(path):
    cache = filled()
    cache.commit(0, path)
    assert cache.lengths == [5 + len(path)]
    assert row_of(cache)[: 5 + len(path)] == [0, 1, 2, 3, 4, *(100 + node for node in path)]
    assert torch.equal(cache.buffer[:, 1], -cache.buffer[:, 0])


def test_commit_leaves_the_prefix_and_the_other_rows_untouched():
    cache = filled(batch=2)
    before = cache.buffer.clone()
    cache.commit(1, (0, 3, 4))
    assert torch.equal(cache.buffer[:, :, 0], before[:, :, 0])
    assert torch.equal(cache.buffer[:, :, 1, :, :5], before[:, :, 1, :, :5])
    assert cache.lengths == [5, 8]


def test_a_path_in_place_moves_nothing():
    cache = filled()
    before = cache.buffer.clone()
    cache.commit(0, (0, 1, 2))
    assert torch.equal(cache.buffer, before)


def test_not_committing_is_the_rollback():
    cache = filled()
    cache.begin([0], 2, torch.device("cpu"))
    keys, _ = cache.layers[0].update(numbered(1, 200, 2), numbered(1, 200, 2))
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 200, 201]


def test_rollback_forgets_committed_tokens():
    cache = filled()
    cache.commit(0, (0, 1))
    cache.rollback(0, 4)
    assert cache.lengths == [4]
    for length in (5, -1):
        with pytest.raises(ValueError, match="cannot roll back"):
            cache.rollback(0, length)


def test_rows_in_use_see_their_own_slots():
    cache = filled(batch=3)
    cache.commit(2, (0, 1))
    cache.begin([2, 0], 1, torch.device("cpu"))
    new = torch.tensor([20.0, 10.0])[:, None, None, None].expand(2, HEADS, 1, WIDTH)
    keys, _ = cache.layers[0].update(new, new)
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 100, 101, 20]
    assert keys[1, 0, :6, 0].tolist() == [0, 1, 2, 3, 4, 10]


def test_memory_is_the_capacity_and_never_grows():
    cache = TreeCache(LAYERS, 2, 30)
    assert cache.nbytes == 0
    cache = filled(batch=2, capacity=30)
    leased = cache.nbytes
    assert leased == LAYERS * 2 * 2 * HEADS * 30 * WIDTH * 4
    for _ in range(3):
        cache.commit(0, (0, 1))
        cache.commit(1, (0,))
        cache.begin([0, 1], 4, torch.device("cpu"))
        cache.layers[0].update(numbered(2, 0, 4), numbered(2, 0, 4))
    assert cache.nbytes == leased


def test_unused_slots_hold_zeros():
    assert row_of(filled(capacity=20))[11:] == [0.0] * 9


def test_what_does_not_fit_is_refused_with_the_numbers_and_changes_nothing():
    cache = filled(capacity=12)
    before, view = cache.buffer.clone(), cache.view
    with pytest.raises(CacheFull, match=r"5 committed tokens \+ 8 new nodes do not fit a cache of 12"):
        cache.begin([0], 8, torch.device("cpu"))
    assert torch.equal(cache.buffer, before)
    assert (cache.lengths, cache.view) == ([5], view)
    cache.begin([0], 7, torch.device("cpu"))
