"""decode(): the only loop of the program. Draft, verify, accept, commit; every step leaves an event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from specviz.acceptance.base import is_greedy_only
from specviz.cache import TreeCache
from specviz.clock import Clock
from specviz.drafters.base import Drafter, Feedback
from specviz.errors import BadInput
from specviz.events import Event, Finished, Prefilled, Verified
from specviz.evidence import Evidence, Gathered, gather
from specviz.record import TOP, Recorder, describe_run
from specviz.registry import Bound
from specviz.rows import Request, Row
from specviz.sampling import Sampling, Uniform
from specviz.shapes.base import MAX_NODES
from specviz.staging import send
from specviz.target import Output, Target
from specviz.tree import TokenTree

PHASES = ("draft", "verify", "accept", "commit")


@dataclass(frozen=True)
class _Run:
    """What every step of one run needs; nothing in it changes."""

    target: Target
    drafter: Drafter
    rule: Bound
    sampling: Sampling
    uniform: Uniform
    cache: TreeCache
    clock: Clock
    recorder: Recorder


def decode(
    target: Target, drafter: Drafter, rule: Bound, requests: Sequence[Request], *, sampling: Sampling, max_new_tokens: int,
    clock: Clock | None = None, detail: bool = True, stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:  # fmt: skip
    """Decodes every request and yields its events as they happen; B requests share each forward.

    Everything is checked before the first forward (BadInput); a failure later ends every row with reason "error" and is raised.
    `stopped` is asked once per round. Closing the generator stops at once, without Finished events.
    """
    rows = _rows(target, rule, requests, max_new_tokens, sampling)
    with target.graphs.lend(len(rows), max(row.prompt + row.limit for row in rows) + MAX_NODES) as cache:
        run = _Run(target, drafter, rule, sampling, Uniform(sampling.seed), cache, clock or Clock(target.device), Recorder(target, detail))
        yield from _events(run, rows, requests, max_new_tokens, stopped)


def _events(run: _Run, rows: list[Row], requests: Sequence[Request], max_new_tokens: int, stopped: Callable[[], bool]) -> Iterator[Event]:
    meta, start = describe_run(run.target, run.drafter, run.rule, run.sampling), time.perf_counter()
    for row, request in zip(rows, requests, strict=True):
        yield run.recorder.started(row.index, request.prompt, request.ids, max_new_tokens, meta)
    try:
        yield from _rounds(run, rows, stopped)
    except Exception as problem:
        for row in rows:
            message = "" if row.reason else str(problem) or type(problem).__name__
            row.reason = row.reason or "error"
            yield _finished(run, row, time.perf_counter() - start, message)
        raise
    for row in rows:
        yield _finished(run, row, time.perf_counter() - start)


def _rounds(run: _Run, rows: list[Row], stopped: Callable[[], bool]) -> Iterator[Event]:
    seen: list[Feedback] = []
    for row in rows:
        feedback, prefilled = _prefill(run, row)
        seen.append(feedback)
        yield prefilled
    seen = [feedback for feedback in seen if not rows[feedback.row].reason]
    if seen and not run.drafter.ready(seen):
        with run.clock.phase("capture"):
            run.drafter.capture(seen)
    with closing(run.drafter.draft(seen)) as flow:
        started = False
        while active := [rows[feedback.row] for feedback in seen]:
            if stopped():
                for row in active:
                    row.reason = "stopped"
                return
            with run.clock.phase("draft"):
                trees = flow.send(seen) if started else next(flow)
                _check(run.target, active, trees)
            started, shared = True, _share(run.clock.take(wait=False), len(active))
            if run.recorder.detail:
                for row, tree in zip(active, trees, strict=True):
                    with run.clock.phase("record"):
                        drafted = run.recorder.drafted(row.index, row.rounds, tree, run.drafter.name, shared)
                    yield drafted
            output = _verify(run, active, trees)
            found = _evidence(run, active, trees, output)
            shared, seen = _sum(shared, _share(run.clock.take(wait=False), len(active))), []
            for place, (row, evidence) in enumerate(zip(active, found, strict=True)):
                hidden = {tap: states[place] for tap, states in output.hidden.items()}
                feedback, verified = _judge(run, row, evidence, hidden)
                if not row.reason:
                    seen.append(feedback)
                spent = run.clock.take(wait=bool(row.reason))  # its last round has to account for everything
                yield replace(verified, seconds=row.charge(_sum(shared, spent)))


def _rows(target: Target, rule: Bound, requests: Sequence[Request], max_new_tokens: int, sampling: Sampling) -> list[Row]:
    """Checks everything that can be checked before the first forward."""
    if not requests:
        raise BadInput("There is nothing to decode: expected at least one request.")
    if max_new_tokens < 1:
        raise BadInput(f"max_new_tokens={max_new_tokens} is too small. Expected 1 or more.")
    if is_greedy_only(rule) and not sampling.greedy:
        raise BadInput(
            f"Rule {rule.name!r} works at temperature 0 only, got {sampling.temperature:g}. Use rule 'rejection', which is lossless at any temperature."
        )
    rows = []
    for index, request in enumerate(requests):
        free = target.context - len(request.ids)
        if not request.ids:
            raise BadInput("The prompt is empty. Write something for the model to continue.")
        if any(not 0 <= token < target.vocab_size for token in request.ids):
            raise BadInput(f"The prompt holds token ids outside 0 to {target.vocab_size - 1}: it was encoded with another tokenizer.")
        if free < 1:
            raise BadInput(f"The prompt has {len(request.ids)} tokens; {target.name} reads at most {target.context}. Shorten it.")
        rows.append(Row(index, list(request.ids), len(request.ids), min(max_new_tokens, free), "length" if max_new_tokens <= free else "context"))
    return rows


def _check(target: Target, rows: Sequence[Row], trees: Sequence[TokenTree]) -> None:
    """Refuses trees that would decode a wrong text without a word."""
    if len(trees) != len(rows):
        raise BadInput(f"The drafter gave {len(trees)} trees for {len(rows)} rows; expected one a row.")
    for row, tree in zip(rows, trees, strict=True):
        if tree.tokens[0] != row.tokens[-1]:
            raise BadInput(f"Row {row.index}: the tree's root is token {tree.tokens[0]}, expected the last one emitted, {row.tokens[-1]}.")
        if not 0 <= min(tree.tokens) <= max(tree.tokens) < target.vocab_size:
            odd = next(token for token in tree.tokens if not 0 <= token < target.vocab_size)
            raise BadInput(f"Row {row.index}: the tree holds token {odd}, expected ids from 0 to {target.vocab_size - 1}.")


def _prefill(run: _Run, row: Row) -> tuple[Feedback, Prefilled]:
    """Runs the prompt and picks the first token, which belongs to no round."""
    with run.clock.phase("prefill"):
        output = run.target.prefill(row.tokens, run.cache, row.index, run.drafter.taps)
    (evidence,) = _evidence(run, [row], [TokenTree((row.tokens[-1],), (-1,))], output, "prefill")
    with run.clock.phase("prefill"):
        token = evidence.choice(0)
        row.take([token], run.target.eos)
    with run.clock.phase("record"):
        event = run.recorder.prefilled(row.index, token, evidence)
    hidden = {tap: states[0] for tap, states in output.hidden.items()}
    return _feedback(run, row, (), hidden, None), replace(event, seconds=row.charge(run.clock.take()))


def _verify(run: _Run, active: Sequence[Row], trees: Sequence[TokenTree]) -> Output:
    """Runs the round's one forward of the target."""
    rows, taps = [row.index for row in active], run.drafter.taps
    if not run.target.graphs.ready(trees, run.cache, rows, taps):
        with run.clock.phase("capture"):  # once per shape and no part of decoding: the next run finds the graph
            run.target.graphs.capture(trees, run.cache, rows, taps)
    with run.clock.phase("verify"):
        return run.target.forward(trees, run.cache, rows, taps)


def _evidence(run: _Run, active: Sequence[Row], trees: Sequence[TokenTree], output: Output, phase: str = "accept") -> Sequence[Evidence]:
    """Returns each row's evidence; where the device runs ahead, all that rule and recorder will ask for comes in the round's one transfer."""
    pairs = [(tree, output.logits[place], run.sampling, run.uniform, len(row.tokens) - 1) for place, (row, tree) in enumerate(zip(active, trees, strict=True))]
    if not run.target.runs_ahead:
        return [Evidence(*pair) for pair in pairs]
    with run.clock.phase(phase):
        found = [Gathered(*pair) for pair in pairs]
    if run.recorder.detail:
        with run.clock.phase("record"):
            for evidence in found:
                evidence.enqueue_columns(TOP)
    with run.clock.phase(phase):
        gather(found)
    return found


def _judge(run: _Run, row: Row, evidence: Evidence, hidden: dict[int, torch.Tensor]) -> tuple[Feedback, Verified]:
    """Applies the rule to one verified tree, commits the accepted path and emits its tokens."""
    tree = evidence.tree
    with run.clock.phase("accept"):
        verdict = run.rule(tree, evidence)
        emitted = row.take([*(tree.tokens[node] for node in verdict.path), verdict.next_token], run.target.eos)
    with run.clock.phase("commit"):
        path = verdict.path[: len(emitted)]  # an end token inside the path ends the commit there
        run.cache.commit(row.index, (0, *path))
    with run.clock.phase("record"):
        event = run.recorder.verified(row.index, row.rounds, tree, evidence, verdict, emitted, run.cache.lengths[row.index])
    row.rounds += 1
    if hidden:
        place = send((0, *path), evidence.logits.device)
        hidden = {tap: states.index_select(0, place) for tap, states in hidden.items()}
    return _feedback(run, row, path, hidden, evidence.logits), event


def _feedback(run: _Run, row: Row, path: tuple[int, ...], hidden: dict[int, torch.Tensor], logits: torch.Tensor | None) -> Feedback:
    return Feedback(row.index, row.tokens, path, hidden, logits, run.sampling, run.uniform, row.room)


def _share(seconds: dict[str, float], rows: int) -> dict[str, float]:
    """Splits the seconds of a shared phase evenly over the rows that were in it."""
    return {name: value / rows for name, value in seconds.items()}


def _sum(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in one | other}


def _finished(run: _Run, row: Row, wall: float, message: str = "") -> Finished:
    seconds = {name: row.seconds.get(name, 0.0) for name in ("prefill", *PHASES, "record")}
    seconds |= {name: row.seconds[name] for name in ("capture",) if name in row.seconds}
    seconds |= {"total": seconds["prefill"] + sum(seconds[name] for name in PHASES), "wall": wall}
    text = run.target.decode(row.emitted) if run.target.tokenizer is not None else ""
    return Finished(row.index, row.reason, tuple(row.emitted), text, row.rounds, seconds, message)
