"""The floor of a forward: bytes and operations counted by hand."""

from __future__ import annotations

import pytest

from specviz.analysis.floor import Machine, Sizes, Work, floor_record, forward_work

SIZES = Sizes(weights=1000, layers=2, heads=4, kv_heads=2, head_dim=8, vocabulary=50, number_bytes=4)


def test_bytes_and_operations_of_a_forward() -> None:
    work = forward_work(SIZES, nodes=3, cached=7)
    assert work.bytes == 4 * (1000 + 2 * 2 * 2 * 8 * 10 + 3 * 50)
    assert work.flops == 2 * 3 * 1000 + 4 * 3 * 2 * 4 * 8 * 10
    two = forward_work(SIZES, nodes=3, cached=7, batch=2)
    assert two.flops == 2 * work.flops
    assert two.bytes - work.bytes == 4 * (2 * 2 * 2 * 8 * 10 + 3 * 50)  # weights are read once for both rows


def test_the_slower_of_memory_and_arithmetic_decides() -> None:
    machine = Machine(bandwidth=1e6, peak=1e6)
    assert (machine.floor_ms(Work(2000, 1000)), machine.bound(Work(2000, 1000))) == (2.0, "memory")
    assert (machine.floor_ms(Work(1000, 3000)), machine.bound(Work(1000, 3000))) == (3.0, "arithmetic")
    assert floor_record(machine, Work(2000, 1000), 5.0)["gap"] == pytest.approx(2.5)
    assert floor_record(machine, Work(0, 0), 5.0)["gap"] is None
