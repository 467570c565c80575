"""Does the app, or a client that watches, slow decoding? The same run three ways, in turn, many times over:

direct   decoded and recorded in the main thread of a process of its own, as the command line does
handler  the app: the live page's own handler, drained in this thread: what the page adds without anybody connected
client   the app: the same handler over HTTP; a client joins the queue and reads the stream to its end, as a browser does

Compared are the decoding phases (draft, verify, accept, commit) and the wall time from the first event to the last.
The page draws some times a second and pauses after each picture on purpose, so the wall time of the last two is longer; decoding time must
not be. `rounds` and `messages` of a run tell how many of its rounds were drawn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from specviz.analysis.profile import Spread
from specviz.build import build_drafter, build_rule, parse_spec
from specviz.decode import Request, decode
from specviz.events import Event, Finished
from specviz.sampling import Sampling
from specviz.settings import Settings
from specviz.target import Target
from specviz.trace import Trace
from specviz.ui.app import App
from specviz.ui.build import build, serve
from specviz.ui.engine import Ask, Engine

MODES = ("direct", "handler", "client")
DECODING = ("draft", "verify", "accept", "commit")
PATIENCE = 600.0


class Watched(Engine):
    """The app's engine, which also keeps the last recorded run's request and seconds."""

    ask: Ask | None = None
    seconds: dict[str, float]

    def events(self, ask: Ask, *, detail: bool = True, **options: Any) -> Iterator[Event]:
        """Yields what the engine yields; warm-ups and plain runs, which are not recorded in detail, leave no mark."""
        for event in super().events(ask, detail=detail, **options):
            if detail and isinstance(event, Finished):
                self.ask, self.seconds = ask, spent(event)
            yield event


class Alone:
    """A process that decodes what it is asked to in its main thread, and nothing else; it loads the model when it starts."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--answer"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def __call__(self, ask: Ask) -> dict[str, float]:
        """Returns the seconds of one run by phase. Raises SystemExit when the process has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**asdict(ask), "spec": str(ask.spec)}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process that decodes alone has ended; what it said is above")
        found: dict[str, float] = json.loads(line)
        return found

    def close(self) -> None:
        self.process.communicate()  # closes its input, which ends it


def answer(target: Target) -> None:
    """Decodes what each line of standard input asks for, and prints its seconds."""
    for line in sys.stdin:
        asked = json.loads(line)
        ask = Ask(**{**asked, "spec": parse_spec(asked["spec"]), "sampling": Sampling(**asked["sampling"])})
        print(json.dumps(decoded(target, ask)), flush=True)


def decoded(target: Target, ask: Ask) -> dict[str, float]:
    """Returns the seconds of one recorded run in this thread."""
    drafter, rule = build_drafter(target, ask.spec, temperature=ask.sampling.temperature), build_rule(ask.rule, ask.rule_knobs)
    request = Request(tuple(target.encode(ask.prompt)), ask.prompt)
    events = list(Trace().record(decode(target, drafter, rule, [request], sampling=ask.sampling, max_new_tokens=ask.max_new_tokens)))
    return spent(next(event for event in events if isinstance(event, Finished)))


def spent(event: Finished) -> dict[str, float]:
    return {**event.seconds, "rounds": event.rounds}


def main() -> None:
    """Measures, and prints or writes one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--prompt", default="What should I bring to a dinner with new neighbours?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE instead of printing it")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    settings = replace(Settings.from_env(), port=0)
    if args.answer:
        answer(Target.load(settings.target))
        return
    alone = Alone()
    try:
        text = json.dumps(measure(App(settings, Watched(settings)), alone, args.prompt, args.tokens, args.repeats), indent=1) + "\n"
    finally:
        alone.close()
    if args.json:
        args.json.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def measure(app: App, direct: Callable[[Ask], dict[str, float]], prompt: str, tokens: int, repeats: int) -> dict[str, Any]:
    """Returns every run's seconds, and per mode the ratio to the direct run of the same repeat."""
    engine: Any = app.engine
    engine.wait(PATIENCE)  # in the background, as the app does: what this thread computes would slow all others
    demo = build(app=app)
    address = serve(demo)[1]
    try:
        page = LivePage(demo, prompt, tokens)
        page.through_http(address)  # warms everything up, and tells which request the page makes of its controls
        direct(engine.ask)
        runs: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
        for repeat in range(repeats):
            for mode in MODES[repeat % 3 :] + MODES[: repeat % 3]:
                runs[mode].append(one_run(engine, direct, page, mode, address))
    finally:
        demo.close(verbose=False)  # what it says would spoil the JSON
    return {"prompt": prompt, "tokens": tokens, "repeats": repeats, "spec": str(engine.ask.spec), "runs": runs, **ratios(runs)}


def one_run(engine: Any, direct: Callable[[Ask], dict[str, float]], page: LivePage, mode: str, address: str) -> dict[str, float]:
    """Returns the seconds of one run: decoding, wall, and how many messages a client read."""
    messages = 0
    if mode == "handler":
        page.in_this_thread()
    elif mode == "client":
        messages = page.through_http(address)
    found = direct(engine.ask) if mode == "direct" else engine.seconds
    return {"decoding": sum(found[name] for name in DECODING), "wall": found["wall"], "rounds": found["rounds"], "messages": messages}


def ratios(runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Returns {"decoding_ratio": {mode: spread}, "wall_ratio": {mode: spread}} against the direct run of the same repeat."""
    told: dict[str, Any] = {}
    for kind in ("decoding", "wall"):
        pairs = {mode: zip(runs[mode], runs["direct"], strict=True) for mode in MODES[1:]}
        told[f"{kind}_ratio"] = {mode: vars(Spread.of([one[kind] / direct[kind] for one, direct in both])) for mode, both in pairs.items()}
    return told


class LivePage:
    """The live page's decode handler in a built app, with the values that its controls hold."""

    def __init__(self, demo: Any, prompt: str, tokens: int) -> None:
        found = [(number, fn) for number, fn in demo.fns.items() if getattr(fn.fn, "__qualname__", "") == "LivePage.decode"]
        if len(found) != 1:
            raise SystemExit(f"expected one handler LivePage.decode in the app, found {len(found)}")
        self.number, self.handler = found[0]
        page = self.handler.fn.__self__
        wanted = {page.prompt.text: prompt, page.prompt.length: tokens, page.plain: False}
        self.values = {part: wanted.get(part, getattr(part, "value", None)) for part in self.handler.inputs}

    def in_this_thread(self) -> None:
        for _ in self.handler.fn(dict(self.values), SimpleNamespace(session_hash="streaming-check")):
            pass

    def through_http(self, address: str) -> int:
        """Joins the queue, reads the stream until the run is complete, and returns how many messages came."""
        session, base = uuid.uuid4().hex[:12], f"{address.rstrip('/')}/gradio_api"
        body = {"data": list(self.values.values()), "fn_index": self.number, "session_hash": session}
        with httpx.Client(timeout=PATIENCE) as client:
            joined = client.post(f"{base}/queue/join", json=body).raise_for_status().json()["event_id"]
            with client.stream("GET", f"{base}/queue/data", params={"session_hash": session}) as stream:
                return read_stream(stream.iter_lines(), joined)


def read_stream(lines: Iterator[str], event: str) -> int:
    """Counts the messages of one run. Raises SystemExit when it failed or broke off."""
    count = 0
    for line in lines:
        if not line.startswith("data:"):
            continue
        message = json.loads(line.removeprefix("data:"))
        count += 1
        if message.get("msg") == "process_completed" and message.get("event_id") == event:
            if not message.get("success"):
                raise SystemExit(f"the run failed in the app: {message.get('output')}")
            return count
    raise SystemExit("the stream ended before the run did")


if __name__ == "__main__":
    main()
