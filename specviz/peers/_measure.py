"""Runs every peer on the same prompts, one process each, in turn prompt by prompt, so that a slow minute hits all alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specviz import peers
from specviz.analysis.peers import DEFINITIONS, Entrant, Sample, differences, row
from specviz.build import PLAIN
from specviz.peers._environment import environment
from specviz.peers._link import Link
from specviz.peers._worker import OWN, peer_class
from specviz.peers.base import Job, PeerFailed
from specviz.registry import discover, summary

REFERENCE = "transformers_generate"
WARM_UP_TOKENS = 16
GAPS = 20  # differences a peer whose gap is measured; each costs a forward
Tell = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Contest:
    """What is decoded and by whom: our drafters as specs, and every file of this package. `folder` holds throw-away environments.

    `keep` gets the record after every prompt, so that a measurement that is broken off loses only what it had not begun.
    """

    job: Job
    specs: Sequence[str]
    prompts: Sequence[str]
    texts: Sequence[str]
    max_new_tokens: int
    raw: bool = False
    folder: Path = Path("runs/peers")
    only: Sequence[str] | None = None  # peers by file name; None takes all
    tell: Tell = field(default=lambda text: None)
    keep: Keep = field(default=lambda record: None)


def measure(contest: Contest) -> dict[str, Any]:
    """Returns {"peers": rows, "reference": name, ...}. Raises PeerFailed when our own plain decoding cannot run; anybody else only loses their row."""
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specviz-peers-")))
        contest.tell(f"loading {OWN} {PLAIN}")
        plain = _start(OWN, replace(contest.job, spec=PLAIN), logs / "1.log", contest.folder)
        stack.callback(plain.close)
        told = plain.call("describe").result
        job = replace(contest.job, device=told["device"], dtype=told["dtype"], eos=tuple(told["eos"]))
        setting = {**job.to_json(), "target": Path(job.target).name, "source": Path(job.source).name}  # folders are of this machine only
        setting |= {name: told[name] for name in ("graphs", "notes") if name in told}
        ids = plain.call("encode", prompts=list(contest.texts), raw=contest.raw).result
        entrants, links = {PLAIN: _entrant(OWN, PLAIN)}, {PLAIN: plain}
        for name, peer, spec in _others(contest):
            entrants[name] = _entrant(peer, spec)
            with _forgiven(entrants[name], links, contest.tell):
                contest.tell(f"loading {entrants[name].label}")
                links[name] = _start(peer, replace(job, spec=spec), logs / f"{len(entrants)}.log", contest.folder)
                stack.callback(links[name].close)
        _warm_up(entrants, links, max(ids, key=len), job, contest)
        for place in range(len(ids)):
            _decode(entrants, links, ids, place, contest)
            contest.keep(_record(entrants, {}, ids, contest, setting))  # without gaps, which only our own worker tells
        return _record(entrants, links, ids, contest, setting)


def _record(
    entrants: Mapping[str, Entrant], links: dict[str, Link], ids: Sequence[Sequence[int]], contest: Contest, setting: Mapping[str, Any]
) -> dict[str, Any]:
    reference = entrants.get(REFERENCE, Entrant(REFERENCE, REFERENCE, ""))
    apart = {name: _differences(entrant, reference, entrants[PLAIN], links, ids) for name, entrant in entrants.items()}
    rows = [row(entrant, reference, contest.prompts, apart[name]) for name, entrant in entrants.items()]
    return {"peers": rows, "reference": REFERENCE, "setting": dict(setting), "definitions": DEFINITIONS}


def _others(contest: Contest) -> Iterator[tuple[str, str, str]]:
    """Yields (row name, peer, spec) of everybody but our plain decoding."""
    yield from ((spec, OWN, spec) for spec in contest.specs if spec != PLAIN)
    yield from ((name, name, "") for name in discover(peers) if contest.only is None or name in contest.only)


def _entrant(peer: str, spec: str) -> Entrant:
    cls = peer_class(peer)
    return Entrant(spec or peer, f"{cls.label}, {spec}" if spec else cls.label, summary(cls), cls.notes)


def _start(peer: str, job: Job, log: Path, folder: Path) -> Link:
    cls = peer_class(peer)
    if reason := cls.missing(job):
        raise PeerFailed(reason)
    python = environment(folder / peer, cls.requires) if cls.requires else None
    return Link(peer, job, log, python)


@contextmanager
def _forgiven(entrant: Entrant, links: dict[str, Link], tell: Tell = lambda text: None) -> Iterator[None]:
    """Notes a failure as the reason of this row, and leaves the peer out from then on."""
    try:
        yield
    except PeerFailed as problem:
        done = f" after {len(entrant.samples)} prompts" if entrant.samples else ""
        entrant.reason = f"{problem}{done}"
        links.pop(entrant.name, None)
        tell(f"{entrant.label}: {entrant.reason}")


def _warm_up(entrants: Mapping[str, Entrant], links: dict[str, Link], ids: Sequence[int], job: Job, contest: Contest) -> None:
    # a forward that is compiled is compiled for one size of its cache, so there the warm-up is as long as the longest run
    tokens = contest.max_new_tokens if job.device.startswith("cuda") else min(WARM_UP_TOKENS, contest.max_new_tokens)
    for name in list(links):
        entrant = entrants[name]
        contest.tell(f"warming up {entrant.label}")
        with _forgiven(entrant, links, contest.tell):
            ready = links[name].ready
            entrant.versions, entrant.memory = ready.result, {"loaded": ready.memory.get("now", 0), **ready.memory}
            links[name].call("generate", ids=ids, max_new_tokens=tokens)


def _decode(entrants: Mapping[str, Entrant], links: dict[str, Link], ids: Sequence[Sequence[int]], place: int, contest: Contest) -> None:
    names = list(links)
    turn = place % len(names) if names else 0
    for name in names[turn:] + names[:turn]:
        entrant = entrants[name]
        contest.tell(f"prompt {place + 1} of {len(ids)}: {entrant.label}")
        with _forgiven(entrant, links, contest.tell):
            reply = links[name].call("generate", ids=ids[place], max_new_tokens=contest.max_new_tokens)
            entrant.samples[place] = Sample(tuple(reply.result["tokens"]), reply.seconds, reply.result["forwards"])
            entrant.memory = {"loaded": entrant.memory.get("loaded", 0), **reply.memory}


def _differences(entrant: Entrant, reference: Entrant, plain: Entrant, links: dict[str, Link], ids: Sequence[Sequence[int]]) -> dict[int, dict[str, Any]]:
    """Returns where texts part, the first ones with how close the decision was for our own plain decoding."""
    told: dict[int, dict[str, Any]] = {}
    for place, found in differences(entrant, reference).items():
        told[place] = found.to_json()
        if PLAIN in links and len(told) <= GAPS:
            before = [*ids[place], *reference.samples[place].tokens[: found.position]]
            with _forgiven(plain, links):
                told[place] = links[PLAIN].call("gap", ids=before, position=found.position, here=found.baseline, there=found.other).result
    return told
