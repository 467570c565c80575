"""Recorded runs for tests: some written by hand with known numbers, some of the tiny target with a drafter that knows the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specviz.build import build_drafter, build_rule, parse_spec
from specviz.decode import Request, decode
from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.events import Drafted, Event, Finished, Prefilled, Started, Verified
from specviz.sampling import Sampling
from specviz.target import Target
from specviz.trace import Trace
from specviz.tree import TokenTree

SECONDS = {"draft": 0.01, "verify": 0.05, "accept": 0.002, "commit": 0.001, "record": 0.004}
META = {"target": {"name": "by hand"}, "drafter": {"name": "eagle", "knobs": {}, "shape": None}, "rule": {"name": "greedy", "knobs": {}, "lossless": True}, "sampling": Sampling().to_json(), "seed": 0, "device": {"name": "CPU"}, "dtype": "float32", "versions": {"specviz": "0"}}  # fmt: skip


def round_of(number: int, parents: Sequence[int], path: Sequence[int], *, cut: bool = False, row: int = 0, **columns: Any) -> tuple[Drafted, Verified]:
    """Returns one round by hand: node i holds token 10 + i, the bonus is token 99. `cut`: the last path token ended the text."""
    size, depths, ranks = len(parents), [0] * len(parents), [0] * len(parents)
    for node in range(1, size):
        depths[node] = depths[parents[node]] + 1
        ranks[node] = sum(parents[other] == parents[node] for other in range(node))
    tokens = [10 + node for node in range(size)]
    none: list[Any] = [None] * size
    drafted = {"scores": columns.get("scores", none), "candidate": columns.get("candidate", [True] * size), "pruned": columns.get("pruned", ())}
    emitted = [tokens[node] for node in path] + ([] if cut else [99])
    verdicts = ["root" if node == 0 else "accepted" if node in path else "rejected" if parents[node] in (0, *path) else "unreached" for node in range(size)]
    tests = {"node": list(range(1, size)), "reason": ["argmax" if node in path else "not_argmax" for node in range(1, size)]}
    texts = {str(token): columns.get("text", f" t{token}") for token in (*tokens, 99)}
    return (
        Drafted(row, number, tokens, parents, depths, ranks, drafted["scores"], none, ["eagle"] * size, drafted["candidate"], (), {}, drafted["pruned"], {}, {"draft": 0.01}, texts),
        Verified(row, number, tuple(path), None if cut else 99, "target", emitted, 5, verdicts, tests, columns.get("p", none), none, none, none, none, columns.get("tops", {}), columns.get("seconds", SECONDS)),
    )  # fmt: skip


def trace_of(*rounds: tuple[Drafted, Verified], reason: str | None = "length", row: int = 0, top: Sequence[tuple[int, float]] = (), **meta: Any) -> Trace:
    """Returns a whole run by hand: a prompt of 3 tokens, the prefill's token 7 in 0.2 s, the rounds, and (with a reason) the end."""
    events: list[Event] = [
        Started(row, "hello", (1, 2, 3), 100, META | meta, {"1": "a", "2": "b", "3": "c"}),
        Prefilled(row, 7, top, {"prefill": 0.2}, {"7": "seven"}),
    ]
    events += [event for pair in rounds for event in pair]
    trace = Trace(events)
    if reason is not None:
        spent = {"prefill": 0.2, "total": 0.2, "wall": 9.0}
        events.append(Finished(row, reason, tuple(trace.emitted(row)), "the text", len(rounds), spent))
    return trace


class Knowing(Drafter):
    """Drafts the text it was told, with wrong siblings beside it, and a wrong token in place of every `miss`-th one."""

    def __init__(self, target: Target, text: Sequence[int], miss: int = 4) -> None:
        super().__init__(target)
        self.text, self.miss, self.name = list(text), miss, "knowing"

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        while True:
            at = len(seen.tokens)
            told = [(token + (place % self.miss == 0)) % 300 for place, token in enumerate(self.text[at : at + min(3, seen.room)], at)]
            tokens, parents, last = [seen.next_token], [-1], 0
            for token in told:
                tokens += [(token + 5) % 300, token]
                parents += [last, last]
                last = len(tokens) - 1
            seen = yield TokenTree(tuple(tokens), tuple(parents), (1.0, *([0.2, 0.7] * len(told))))


def run_tiny(
    target: Target, drafter: Drafter | None = None, *, sampling: Sampling | None = None, rule: str = "rejection", new: int = 24, detail: bool = True
) -> Trace:
    """Returns the trace of a run of the tiny target on a fixed prompt; without a drafter it is plain decoding."""
    trace = Trace()
    drafter = drafter or build_drafter(target, parse_spec("autoregressive"))
    request = Request(tuple(target.encode("to be or not")), "to be or not")
    for _ in trace.record(decode(target, drafter, build_rule(rule), [request], sampling=sampling or Sampling(), max_new_tokens=new, detail=detail)):
        pass
    return trace


def run_knowing(target: Target, **options: Any) -> tuple[Trace, Trace]:
    """Returns (a run that accepts most of what it drafts, the plain run of the same prompt)."""
    plain = run_tiny(target, **options)
    text = [*plain.started().prompt_ids, *plain.emitted()]
    return run_tiny(target, Knowing(target, text), **options), plain


def verified(trace: Trace) -> Iterator[Verified]:
    return (event for event in trace.events if isinstance(event, Verified))
