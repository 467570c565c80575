"""DraftGraphs: a head drafts by replaying one captured draft per form of tree and view, in a lease that a run has to itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from specviz.errors import NotCaptured
from specviz.graphs.capture import Replay, capture
from specviz.graphs.grow import Form, Steps, grow, read
from specviz.graphs.lease import MOST_GRAPHS, Leases, slots_for, view_for
from specviz.staging import fetch, stage
from specviz.tree import TokenTree

if TYPE_CHECKING:
    from specviz.graphs.verify import Graphs

MOST_IDLE = 16  # leases kept for later runs: every row of a batch has one


@dataclass(frozen=True)
class Span:
    """How long the text of a row is when drafting starts, and how long it may become; both in tokens."""

    first: int
    last: int


OneSteps = TypeVar("OneSteps", bound=Steps)


class DraftLease(Generic[OneSteps]):
    """The tensors of one head's draft steps with the graphs captured over them; one row of a run has it at a time."""

    def __init__(self, steps: OneSteps, device: torch.device) -> None:
        self.rows, self.slots, self.steps = 1, steps.slots, steps
        self.graphs: OrderedDict[tuple[Form, int], Replay] = OrderedDict()
        # a pool and a stream of its own: its one output is read before anything else of this lease runs
        self.pool: Any = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    def view(self, length: int) -> int:
        """Returns how many slots attention looks at for so many committed tokens; 0 for a head that remembers none."""
        return view_for(length, self.slots) if self.slots else 0

    def views(self, span: Span) -> list[int]:
        """Returns every view that a text of this span comes to."""
        found = [self.view(span.first)]
        while found[-1] < min(span.last, self.slots):
            found.append(self.view(found[-1] + 1))
        return found

    def graph(self, form: Form, view: int) -> Replay:
        """Returns the draft of this form and view, captured over what the inputs hold now where there is none yet. Raises NotCaptured."""
        key = (form, view)
        if key not in self.graphs:
            while len(self.graphs) >= MOST_GRAPHS:
                self.graphs.popitem(last=False)
            self.graphs[key] = capture(partial(grow, form, self.steps, view), self.steps.inputs, pool=self.pool, stream=self.stream)
        self.graphs.move_to_end(key)
        return self.graphs[key]


class DraftGraphs:
    """Drafting by replay for one head; `make` returns new draft steps with room for so many committed tokens, if the head `remembers` them.

    Follows the target's graphs: where these are off, so is this. When a draft cannot be captured, the target's notes say why
    and the head drafts step by step from then on.
    """

    def __init__(self, graphs: Graphs, make: Callable[[int], Steps], remembers: bool) -> None:
        self._graphs, self._make, self._remembers = graphs, make, remembers
        self._leases: Leases[DraftLease[Any]] = Leases(MOST_IDLE)
        self._on, self.late = True, 0  # late: rounds that had to capture while they drafted, so that no measurement counts them

    @property
    def mode(self) -> str:
        """How drafts are made: cuda (captured graphs), static (their shapes without a graph) or off (step by step)."""
        return self._graphs.mode if self._on and self._graphs.drafting else "off"

    def ready(self, form: Form, spans: Sequence[Span]) -> bool:
        """False when rows of these spans would have to capture a graph while they draft; `capture` does that ahead."""
        taken = [self._leases.take(1, self._slots(span)) for span in spans] if self.mode != "off" else []
        held = [lease for lease in taken if lease is not None]
        for lease in held:
            self._leases.give_back(lease)
        return len(held) == len(taken) and all((form, view) in lease.graphs for lease in held for span in spans for view in lease.views(span))

    def capture(self, form: Form, spans: Sequence[Span]) -> None:
        """Captures what rows of these spans will replay, in leases that they find idle."""
        leases = [self._take(self._slots(span)) for span in spans] if self.mode != "off" else []
        try:
            for lease in leases:
                for view in sorted({view for span in spans for view in lease.views(span)}):
                    lease.graph(form, view)
        except NotCaptured as problem:
            self._give_up(problem)
        finally:
            for lease in leases:
                self._leases.give_back(lease)

    @contextmanager
    def lend(self, span: Span) -> Iterator[DraftLease[Any] | None]:
        """Lends a lease for one row; None where drafting is off."""
        lease = self._take(self._slots(span)) if self.mode != "off" else None
        try:
            yield lease
        finally:
            if lease is not None:
                self._leases.give_back(lease)

    def draft(self, lease: DraftLease[Any], form: Form, root: int, length: int, *, numbers: Sequence[int], states: torch.Tensor) -> TokenTree | None:
        """Returns one round's tree below the token `root`, in one replay and one transfer; None when it has to be drafted step by step.

        length    committed tokens, those that enter in this round included
        numbers   the contents of `numbers`; states `[rows, width]` those of the first rows of `states`
        """
        if self.mode == "off":
            return None
        with torch.inference_mode():
            inputs = lease.steps.inputs
            inputs["numbers"].copy_(stage(numbers, inputs["numbers"].device), non_blocking=True)
            inputs["states"][: len(states)].copy_(states)
            view = lease.view(length)
            self.late += (form, view) not in lease.graphs
            try:
                replay = lease.graph(form, view)  # after the inputs are filled: capturing runs the draft
            except NotCaptured as problem:
                self._give_up(problem)
                return None
            (found,) = fetch([replay.run()])
        return read(form, found, root)

    def _slots(self, span: Span) -> int:
        return slots_for(span.last) if self._remembers else 0

    def _take(self, slots: int) -> DraftLease[Any]:
        lease = self._leases.take(1, slots)
        if lease is None:
            return DraftLease(self._make(slots), self._graphs.device)
        with torch.inference_mode():
            lease.steps.reset()
        return lease

    def _give_up(self, problem: NotCaptured) -> None:
        self._on = False
        self._graphs.tell(f"CUDA graphs for drafting are off: {problem}. Drafting is slower and gives the same text.")
