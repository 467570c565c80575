"""Searching rows by blocks gives what searching whole rows gives."""

from __future__ import annotations

import pytest
import torch

from specviz.largest import BLOCK, FEW_ROWS, largest, most_likely, peaks_of

MANY = FEW_ROWS + 3


def rows(count: int, vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("count", "vocab"), [(MANY, 6 * BLOCK), (MANY, 6 * BLOCK + 1), (1, 6 * BLOCK), (MANY, BLOCK), (MANY, 7)])
@pytest.mark.parametrize("best", [1, 5, 16])
def test_the_largest_are_those_of_topk(count, vocab, best):
    logits = rows(count, vocab)
    found, expected = largest(logits, best), logits.topk(min(best, vocab), -1)
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.indices, expected.indices)
    assert torch.equal(most_likely(logits, peaks_of(logits)), logits.argmax(-1))


def test_blocks_are_searched_where_there_are_many_rows_and_whole_blocks():
    assert peaks_of(rows(MANY, 6 * BLOCK)).shape == (MANY, 6)
    assert [peaks_of(rows(*shape)) for shape in ((FEW_ROWS, 6 * BLOCK), (MANY, 6 * BLOCK + 1), (MANY, BLOCK))] == [None] * 3


def test_the_largest_of_one_block_may_fill_the_whole_list():
    logits = rows(MANY, 8 * BLOCK) / 100
    logits[:, 3 * BLOCK : 3 * BLOCK + 16] += 9
    assert ((largest(logits, 16).indices // BLOCK) == 3).all()


def test_of_equal_logits_the_first_is_the_most_likely():
    logits = torch.zeros(MANY, 6 * BLOCK)
    logits[:, [5, BLOCK + 1, BLOCK + 9]] = torch.tensor([0.0, 2.0, 2.0])
    logits[1, 4 * BLOCK] = 2.0
    assert most_likely(logits, peaks_of(logits)).tolist() == [BLOCK + 1] * MANY


def test_tokens_that_are_ruled_out_are_found_last():
    logits = torch.full((MANY, 4 * BLOCK), -torch.inf)
    logits[:, 7], logits[:, 2 * BLOCK] = 1.0, 2.0
    found = largest(logits, 3)
    assert found.indices[:, :2].tolist() == [[2 * BLOCK, 7]] * MANY
    assert found.values[0].tolist() == [2.0, 1.0, -torch.inf]
