"""Engine: the one loaded target of the app, its drafters, and the runs that people ask for."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specviz.errors import BadInput, Missing, SpecvizError
from specviz.events import Event
from specviz.sampling import Sampling
from specviz.settings import Settings
from specviz.sources import DEFAULT_TARGET, fetch_default
from specviz.ui import zero
from specviz.ui.one_thread import OneThread

if TYPE_CHECKING:
    from specviz.analysis.profile import Profile
    from specviz.build import Spec
    from specviz.drafters.base import Drafter
    from specviz.target import Target

log = logging.getLogger(__name__)
DRAFTERS_KEPT = 8  # loaded drafters; one more drops the one used longest ago
WARM_UP_TOKENS = 4
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
CHARACTERS_PER_TOKEN = 40  # a text longer than this times the limit is refused before it is tokenised
LOAD_PROBLEMS = (SpecvizError, OSError, RuntimeError, ValueError, ImportError, MemoryError)


@dataclass(frozen=True)
class State:
    """What the page says about the engine: kind is idle, loading, ready or error."""

    kind: str
    text: str

    @property
    def settled(self) -> bool:
        """True when nothing will change by waiting."""
        return self.kind in ("ready", "error")


@dataclass(frozen=True)
class Ask:
    """One run that a person asks for; plain values, so that it can travel to another process."""

    prompt: str
    spec: Spec
    rule: str = "greedy"
    rule_knobs: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 64

    def plain(self) -> Ask:
        """The same prompt, sampling and length by plain decoding: what a speed-up is measured against."""
        from specviz.build import Spec

        return replace(self, spec=Spec("autoregressive"), rule="greedy" if self.sampling.greedy else "rejection", rule_knobs={})


class Engine:
    """Loads the target in the background, keeps the drafters that were built, and decodes, in one thread for all. Safe to share between sessions."""

    def __init__(self, settings: Settings, load: Callable[[], Target] | None = None) -> None:
        self.settings = settings
        self._load = load or self._load_target
        self._lock = threading.RLock()
        self._state = State("idle", "model not loaded yet")
        self._target: Target | None = None
        self._drafters: OrderedDict[str, Drafter] = OrderedDict()
        self._warm: set[str] = set()
        self._settled = threading.Event()
        self._work = OneThread("specviz-decode")
        self._lent = zero.gpu(self._decode) if zero.enabled() else None

    @property
    def state(self) -> State:
        return self._state

    @property
    def target(self) -> Target:
        """The loaded target. Raises Missing while there is none, with what to do."""
        if self._target is None:
            raise Missing(f"The model is not ready: {self._state.text}")
        return self._target

    def start(self) -> None:
        """Starts loading in the background, unless that is going on or done; after an error it tries again."""
        with self._lock:
            if self._state.kind in ("loading", "ready"):
                return
            self._state = State("loading", f"loading {self.settings.target} …")
            self._settled.clear()
            threading.Thread(target=self._run_load, name="specviz-load", daemon=True).start()

    def start_unless_failed(self) -> None:
        """Starts loading if nothing was tried yet; an error is only tried again when a person asks for it."""
        if self._state.kind == "idle":
            self.start()

    def load_now(self) -> None:
        """Loads in this thread (ZeroGPU wants models placed when the module is imported)."""
        self._state = State("loading", f"loading {self.settings.target} …")
        self._run_load()

    def wait(self, seconds: float) -> State:
        """Starts loading if needed, waits until it ended or `seconds` passed, and returns the state."""
        if self._state.kind == "idle":
            self.start()
        self._settled.wait(seconds)
        return self._state

    def _run_load(self) -> None:
        try:
            target = self._load()
            with self._lock:
                self._target, self._drafters = target, OrderedDict()
                self._warm = set()
            self._state = State("ready", _describe(target))
        except LOAD_PROBLEMS as problem:
            log.exception("loading %s failed", self.settings.target)
            self._state = State("error", str(problem) or type(problem).__name__)
        finally:
            self._settled.set()

    def _load_target(self) -> Target:
        from specviz.target import Target

        auto = {"auto", ""}
        device = None if self.settings.device in auto else self.settings.device
        dtype = None if self.settings.dtype in auto else self.settings.dtype
        if self.settings.target == DEFAULT_TARGET:  # a hosted Space runs no `make weights`; where they are here, this returns at once
            fetch_default(lambda share, text: self._tell(text))
        # where each call runs in a process of its own, a captured graph would never be replayed
        return Target.load(self.settings.target, device, dtype, graphs=None if self._lent is None else False)

    def _tell(self, text: str) -> None:
        self._state = State("loading", f"loading {self.settings.target}: {text} …")

    def drafter(self, spec: Spec, temperature: float = 0.0) -> Drafter:
        """Returns the drafter of `spec`, its tree sized for runs at `temperature` where that is left to this machine; weights are loaded once per drafter and its own knobs, and shared by all tree shapes.

        Raises BadInput for a wrong name or knob, Missing for a lost checkpoint.
        """
        return self._work.run(lambda: self._shaped(spec, temperature))

    def _shaped(self, spec: Spec, temperature: float) -> Drafter:
        from specviz.build import shaped

        return shaped(self._loaded(spec), spec, temperature=temperature, say=log.info)

    def _loaded(self, spec: Spec) -> Drafter:
        from specviz.build import load_drafter

        if spec.drafter_knobs.get("checkpoint") and self.settings.host not in LOCAL_HOSTS:
            raise BadInput(
                "A checkpoint folder can be chosen only where the app serves this machine alone (SPECVIZ_HOST=127.0.0.1), as it names files of the server."
            )
        key = f"{spec.drafter}:{sorted(spec.drafter_knobs.items())!r}"
        with self._lock:
            made = self._drafters.get(key)
            if made is None:
                made = self._drafters[key] = load_drafter(self.target, spec)
                while len(self._drafters) > DRAFTERS_KEPT:
                    self._drafters.popitem(last=False)
            self._drafters.move_to_end(key)
        return made

    def must_measure(self, ask: Ask) -> bool:
        """True when this run would first have to measure the machine, to size its tree: some seconds that a person should be told of."""
        from specviz.build import auto_of
        from specviz.profiling.budget import must_measure

        made = self._work.run(lambda: self._loaded(ask.spec))
        return auto_of(made, ask.spec) and must_measure(self.target, made, ask.sampling.temperature)

    @property
    def can_measure(self) -> bool:
        """True when the model runs in this process, where it can be measured."""
        return self._lent is None and self._target is not None

    def measure(self) -> Profile:
        """Measures what forwards of the target cost here, keeps the result for `nodes=auto` and the cost chart, and returns it."""
        from specviz.profiling.measure import QUICK, keep, measure

        return self._work.run(lambda: keep(measure(self.target, QUICK), log.warning))

    def encode(self, ask: Ask) -> tuple[int, ...]:
        """Returns the prompt's token ids. Raises BadInput when it is empty or longer than the app's limit, or when too much is asked for."""
        limit = self.settings.max_prompt_tokens
        if not ask.prompt.strip():
            raise BadInput("The prompt is empty. Write something for the model to continue.")
        if not 1 <= ask.max_new_tokens <= self.settings.max_new_tokens:
            most = self.settings.max_new_tokens
            raise BadInput(f"{ask.max_new_tokens} new tokens were asked for. This app writes 1 to {most} a run (SPECVIZ_MAX_NEW_TOKENS).")
        if len(ask.prompt) > limit * CHARACTERS_PER_TOKEN:
            raise BadInput(
                f"The prompt has {len(ask.prompt):,} characters; this app reads at most {limit} tokens. Shorten it, or raise SPECVIZ_MAX_PROMPT_TOKENS."
            )
        ids = tuple(self.target.encode(ask.prompt))
        if len(ids) > limit:
            raise BadInput(f"The prompt has {len(ids):,} tokens; this app reads at most {limit}. Shorten it, or raise SPECVIZ_MAX_PROMPT_TOKENS.")
        return ids

    def warm_up(self, ask: Ask) -> bool:
        """Decodes a few tokens once per drafter, so that no run pays for first use; returns False when that was done before."""
        key = f"{ask.spec} {'greedy' if ask.sampling.greedy else 'sampled'}"
        if key in self._warm:
            return False
        for _ in self.events(replace(ask, max_new_tokens=min(WARM_UP_TOKENS, ask.max_new_tokens)), detail=False):
            pass
        self._warm.add(key)
        return True

    def events(self, ask: Ask, *, detail: bool = True, stopped: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Yields the events of one run as they happen. Everything wrong with `ask` is raised before the first of them."""
        self.encode(ask)
        if self._lent is None:
            yield from self._work.each(lambda: self._decode(ask, detail, stopped))
        else:
            yield from zero.until_stopped(self._lent(ask, detail), stopped, self.target.decode)

    def _decode(self, ask: Ask, detail: bool, stopped: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        from specviz.build import build_rule
        from specviz.decode import Request, decode

        ids, drafter, rule = self.encode(ask), self._shaped(ask.spec, ask.sampling.temperature), build_rule(ask.rule, ask.rule_knobs)
        request = Request(ids, ask.prompt)
        yield from decode(self.target, drafter, rule, [request], sampling=ask.sampling, max_new_tokens=ask.max_new_tokens, detail=detail, stopped=stopped)


def _describe(target: Target) -> str:
    from specviz.record import device_name

    dtype = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(str(target.dtype).removeprefix("torch."), str(target.dtype))
    notes = "".join(f" · {note}" for note in target.notes)
    return f"{target.name} on {device_name(target.device)}, {dtype}{notes}"
