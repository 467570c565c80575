from __future__ import annotations

from specviz.drafters.autoregressive import Autoregressive
from specviz.drafters.base import Drafter, Feedback, per_row
from specviz.sampling import Sampling, Uniform
from specviz.tree import TokenTree


def feedback(row: int, *tokens: int) -> Feedback:
    return Feedback(row, tokens, (), {}, None, Sampling(), Uniform(0), 5)


def test_it_drafts_the_root_alone(tiny_target):
    flow = Autoregressive(tiny_target).draft([feedback(0, 4, 5), feedback(1, 6)])
    assert [tree.tokens for tree in next(flow)] == [(5,), (6,)]
    assert [tree.tokens for tree in flow.send([feedback(1, 6, 7)])] == [(7,)]


def test_per_row_gives_every_row_a_life_of_its_own(tiny_target):
    class Counting(Drafter):
        closed: list[int] = []

        @per_row
        def draft(self, seen):
            """Yields how often it was asked."""
            row, asked = seen.row, 0
            try:
                while True:
                    asked += 1
                    seen = yield TokenTree((asked,), (-1,))
            finally:
                self.closed.append(row)

    drafter = Counting(tiny_target)
    assert drafter.draft.__doc__ == "Yields how often it was asked."
    flow = drafter.draft([feedback(0, 1), feedback(1, 1), feedback(2, 1)])
    assert [tree.tokens[0] for tree in next(flow)] == [1, 1, 1]
    assert [tree.tokens[0] for tree in flow.send([feedback(0, 1), feedback(2, 1)])] == [2, 2]
    assert drafter.closed == [1]  # at once, not at the end of the run
    other = drafter.draft([feedback(0, 1)])
    assert next(other)[0].tokens == (1,)  # two runs share nothing
    flow.close()
    assert sorted(drafter.closed) == [0, 1, 2]


def test_feedback_names_root_and_position():
    seen = feedback(0, 4, 5, 6)
    assert (seen.next_token, seen.position, seen.argmax) == (6, 2, ())
