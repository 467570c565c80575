from __future__ import annotations

import math

import pytest
from recorded import round_of, run_knowing, run_tiny, trace_of

from specviz.analysis.compare import EPSILON, Difference, compare, first_difference
from specviz.target import DTYPES, Target

torch = pytest.importorskip("torch")


def test_the_first_difference_is_found_wherever_it_lies() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == Difference(1, 2, 5)
    assert first_difference([1, 2], [1, 2, 9]) == Difference(2, None, 9)
    assert first_difference([1, 2, 9], []) == Difference(0, 1, None)


def test_epsilon_is_torchs_for_every_dtype_that_a_target_can_have() -> None:
    assert {name: torch.finfo(dtype).eps for name, dtype in DTYPES.items()} == EPSILON


def test_equal_runs_have_no_difference(tiny_target: Target) -> None:
    trace, plain = run_knowing(tiny_target)
    assert compare(plain, trace) is None
    assert compare(plain, run_tiny(tiny_target, new=23)) == Difference(23, plain.emitted()[23], None, dtype="float32", epsilon=2.0**-23)


def test_the_gap_is_read_from_the_tops_of_the_round_that_wrote_the_token() -> None:
    # round 0 emits t11 t12 and the bonus; the second run has the same but for the token after node 1
    top = {"1": ((12, 0.4), (55, 0.1))}
    one, other = round_of(0, (-1, 0, 1), (1, 2), tops=top), round_of(0, (-1, 0, 1), (1, 2))
    other[1].emitted[1] = 55  # type: ignore[index]
    found = compare(trace_of(one), trace_of(other, dtype="bfloat16"))
    assert found is not None
    assert (found.position, found.baseline, found.other) == (2, 12, 55)
    assert found.gap == pytest.approx(math.log(4))
    assert found.epsilon == 2.0**-7


def test_a_token_that_was_not_recorded_among_the_top_has_no_gap() -> None:
    one, other = round_of(0, (-1, 0), (1,), tops={"0": ((11, 0.9),)}), round_of(0, (-1, 0), (1,))
    other[1].emitted[0] = 55  # type: ignore[index]
    found = compare(trace_of(one), trace_of(other))
    assert found is not None
    assert found.gap is None


def test_the_prefill_token_is_compared_too() -> None:
    from dataclasses import replace

    one, other = trace_of(top=((7, 0.5), (8, 0.25))), trace_of()
    other.events[1] = replace(other.events[1], token=8)
    found = compare(one, other)
    assert found is not None
    assert (found.position, found.gap) == (0, pytest.approx(math.log(2)))
