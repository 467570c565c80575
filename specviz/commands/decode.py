"""Decode one prompt and stream its text; accepted draft tokens are marked.

A drafter is a name or a spec: eagle, prompt_lookup:ngram=2, eagle@dynamic:nodes=12,depth=4.
Knobs carry a prefix: --shape.nodes 24, --rule.epsilon 0.1, --drafter.ngram 2. `list` shows them all.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specviz.commands import base
from specviz.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.build import Spec
    from specviz.drafters.base import Drafter
    from specviz.events import Event
    from specviz.registry import Bound
    from specviz.sampling import Sampling
    from specviz.target import Target
    from specviz.trace import Trace

PREFIXES = base.PREFIXES
Stopped = Callable[[], bool]


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="the text of one user turn")
    what.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a file, - for standard input")
    parser.add_argument("--drafter", default="prompt_lookup", metavar="SPEC", help="drafter, or drafter@shape:knob=value,... (default: %(default)s)")
    parser.add_argument("--shape", metavar="NAME", help="tree shape (default: the drafter's own)")
    parser.add_argument("--rule", default="rejection", metavar="NAME", help="acceptance rule (default: %(default)s, lossless at any temperature)")
    base.add_sampling_options(parser, max_new_tokens=128)
    base.add_target_options(parser)
    parser.add_argument("--baseline", action="store_true", help="also decode plainly, with the same prompt and seed, and compare")
    parser.add_argument("--trace", metavar="FILE", help="save the recording as .jsonl or .jsonl.gz")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Decodes and prints: JSON, or the text as it comes and then its numbers."""
    from specviz.analysis.summary import account
    from specviz.build import build_drafter, build_rule
    from specviz.commands.show import print_numbers

    spec, rule, sampling = spec_of(args), build_rule(args.rule, args.knobs["rule"]), base.sampling_of(args)
    prompt = args.prompt if args.prompt is not None else base.read_text(args.prompt_file)
    if not prompt.strip():
        raise BadInput("The prompt is empty. Write something for the model to answer.")
    place = base.output_file(args.trace) if args.trace else None
    out, log = base.consoles()
    with base.only_json(args.json):
        target = base.load_target(args, log)
        drafter = build_drafter(target, spec, temperature=sampling.temperature, say=base.teller(log))
        ids = base.encode(target, prompt, args.raw)
        with stop_on_interrupt() as stopped:
            job = _Job(target, rule, prompt, ids, sampling, args.max_new_tokens, stopped)
            trace = _recorded(job, drafter, None if args.json else out)
            compared: dict[str, Any] = {}
            if args.baseline and not stopped():
                with log.status("decoding plainly, to compare"):
                    trace, compared = _with_baseline(job, trace)
        if place is not None:
            trace.save(place)
    if args.json:
        sys.stdout.write(base.dump(account(trace) | compared))
    else:
        print_numbers(out, trace)
        _print_compared(out, trace, compared)
    return 0


def spec_of(args: argparse.Namespace) -> Spec:
    """Returns the spec that --drafter, --shape and their knobs make up together; raises BadInput when two of them disagree."""
    from specviz.build import check_spec, parse_spec

    spec = parse_spec(args.drafter)
    if args.shape and spec.shape and args.shape != spec.shape:
        raise BadInput(f"--shape {args.shape} and --drafter {args.drafter} name two shapes. Give one.")
    for prefix, there in (("drafter", spec.drafter_knobs), ("shape", spec.shape_knobs)):
        if twice := sorted(set(there) & set(args.knobs[prefix])):
            raise BadInput(f"{twice[0]!r} is given by --drafter {args.drafter} and by --{prefix}.{twice[0]}. Give it once.")
    spec = replace(
        spec,
        shape=args.shape or spec.shape,
        drafter_knobs={**spec.drafter_knobs, **args.knobs["drafter"]},
        shape_knobs={**spec.shape_knobs, **args.knobs["shape"]},
    )
    return check_spec(spec)


@dataclass(frozen=True)
class _Job:
    """One prompt with everything that the run and its baseline share."""

    target: Target
    rule: Bound
    prompt: str
    ids: tuple[int, ...]
    sampling: Sampling
    max_new_tokens: int
    stopped: Stopped

    def events(self, drafter: Drafter) -> Iterator[Event]:
        from specviz.decode import Request, decode

        requests = [Request(self.ids, self.prompt)]
        return decode(self.target, drafter, self.rule, requests, sampling=self.sampling, max_new_tokens=self.max_new_tokens, stopped=self.stopped)


def _recorded(job: _Job, drafter: Drafter, console: Console | None) -> Trace:
    """Runs the job to its end and returns its trace; streams to `console` when there is one."""
    from specviz.trace import Trace

    trace = Trace()
    run = trace.record(job.events(drafter))
    if console is not None:
        stream(console, run)
    for _ in run:
        pass
    return trace


def _with_baseline(job: _Job, trace: Trace) -> tuple[Trace, dict[str, Any]]:
    """Decodes the same prompt plainly; returns the trace that carries it, and what `--json` adds."""
    from specviz.analysis.compare import compare
    from specviz.analysis.summary import baseline_record, measured_speedup, summarise
    from specviz.build import build_drafter, parse_spec

    plain = _recorded(job, build_drafter(job.target, parse_spec("autoregressive")), None)
    if job.stopped():
        return trace, {}
    trace = trace.with_baseline(baseline_record(plain))
    difference = compare(plain, trace)
    told = {"speedup": measured_speedup(trace), "equal_to_baseline": difference is None, "difference": difference and difference.to_json()}
    return trace, {"baseline": {"tokens_per_second": summarise(plain).tokens_per_second, **baseline_record(plain)}, **told}


def stream(console: Console, run: Iterator[Event]) -> None:
    """Prints the text of a run as it comes: accepted draft tokens underlined, the bonus token in green, the prefill's token plain."""
    from rich.text import Text

    from specviz.commands.show import ACCEPTED, BONUS, Writer
    from specviz.events import Finished, Prefilled, Verified

    if console.is_terminal:
        console.print(Text.assemble(("accepted draft token", ACCEPTED), "  ", ("the target's own token", BONUS), "\n"))
    writer, strings = Writer(console), dict[str, str]()
    for event in run:
        if not isinstance(event, Finished):
            strings |= event.strings
        if isinstance(event, Prefilled):
            writer.write(strings[str(event.token)])
        elif isinstance(event, Verified):
            for place, token in enumerate(event.emitted):
                writer.write(strings[str(token)], ACCEPTED if place < len(event.path) else BONUS)
    writer.close()


def _print_compared(console: Console, trace: Trace, compared: dict[str, Any]) -> None:
    from specviz.commands.show import quoted

    if not compared:
        return
    difference = compared["difference"]
    if difference is None:
        console.print("The text equals plain decoding's, token for token.", markup=False)
        return
    here, there = (quoted(trace.strings.get(difference[name], "")) if difference[name] is not None else "the end" for name in ("other", "baseline"))
    gap = "" if difference["gap"] is None else f" The target's logits for the two differ by {difference['gap']:.3g}."
    console.print(f"The text differs from plain decoding's at new token {difference['position'] + 1}: {here} instead of {there}.{gap}", markup=False)


@contextmanager
def stop_on_interrupt() -> Iterator[Stopped]:
    """The first Ctrl-C ends the run after its round, so that its numbers and trace are kept; the second stops at once."""
    pressed = False

    def press(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
