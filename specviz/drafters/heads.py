"""What drafters with a trained head share: knobs, checkpoint, the check against the target, the draft's LM-head rows."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from specviz.drafters.base import Drafter, Feedback
from specviz.drafters.head_file import CONFIG, HeadCheckpoint, HeadConfig, fill, load_head
from specviz.errors import BadFile, BadInput, SpecvizError
from specviz.graphs.draft import DraftGraphs, DraftLease, Span
from specviz.graphs.grow import Form, Steps
from specviz.packed import fast_bfloat16, multiply, pack, packable, replace_linears
from specviz.registry import AUTO, Bound, Knob
from specviz.shapes.base import MAX_NODES, TOP, Growth, Sampler, Step
from specviz.shapes.dynamic import dynamic
from specviz.sources import models_dir, user_path
from specviz.tree import TokenTree

if TYPE_CHECKING:
    from specviz.target import Target


def check_target(config: HeadConfig, target: Target) -> tuple[str, ...]:
    """Returns what differs between the target a head was trained against and this one, and warns about it; the head still runs.

    Raises BadInput when it cannot run at all, because the target's states have another width.
    """
    width = config.sizes.get("feature") or config.sizes.get("hidden")
    if width != target.hidden_size:
        raise BadInput(f"The {config.method} head reads states of width {width}, but {target.name} has {target.hidden_size}. Use the head with its own target.")
    found = tuple(f"{name}: trained against {mine!r}, running on {theirs!r}" for name, mine, theirs in config.fingerprint.differences(target.fingerprint))
    if found:
        text = f"The {config.method} head was trained against another target ({'; '.join(found)}). It runs, but accepts less."
        warnings.warn(text, UserWarning, stacklevel=2)
    return found


def draft_rows(output_embeddings: Any, vocabulary: Tensor) -> Tensor:
    """Returns the target's own LM-head rows of the draft vocabulary `[draft vocab, hidden]`, not trained and never saved."""
    weight = output_embeddings.weight
    highest = int(vocabulary.max())
    if highest >= weight.shape[0]:
        raise BadFile(f"The draft vocabulary names token {highest}, but the target has {weight.shape[0]}. The head belongs to another model.")
    rows: Tensor = weight.detach()[vocabulary.to(weight.device)].contiguous()
    return rows


class Turning(ABC):
    """A shape that is another one every round, as a measurement needs it."""

    @property
    @abstractmethod
    def coming(self) -> Bound:
        """The shape of the next round."""

    @abstractmethod
    def replayed(self, form: Form) -> None:
        """Hears that a round's tree came from a replay, without this shape being called."""


class HeadDrafter(Drafter):
    """What drafters with a trained head share: knobs, checkpoint, the check against the target, the draft's LM-head rows."""

    default_shape: ClassVar[str | None] = "dynamic"
    # Fastest on 2 CPU cores among trees of 4 to 24 nodes, where every node costs time; a GPU verifies far more for nothing.
    default_knobs: ClassVar[Mapping[str, Any]] = {"nodes": 8, "depth": 3, "top_k": 4}
    learned: ClassVar[bool] = True
    method: ClassVar[str]
    remembers: ClassVar[bool] = False  # committed tokens of the run

    def __init__(
        self,
        target: Target,
        *,
        shape: Bound,
        children: Annotated[
            str, Knob("Children", "top: the draft's best tokens; sampled: drawn from it above temperature 0.", choices=("top", "sampled"))
        ] = "top",
        precision: Annotated[
            str,
            Knob(
                "Draft precision",
                "Of the draft's matrix products: bfloat16 reads half the bytes; fastest takes it where the processor multiplies it itself. The text stays the same.",
                choices=("fastest", "float32", "bfloat16"),
                advanced=True,
            ),
        ] = "fastest",
        checkpoint: Annotated[str, Knob("Checkpoint", "Folder of the trained head; empty for the one that comes with the target.", advanced=True)] = "",
    ) -> None:
        super().__init__(target)
        self.shape, self.children = shape, children
        self.folder = head_folder(target, self.method, checkpoint)
        head = load_head(self.folder, self.method)
        self.config, self.warnings = head.config, check_target(head.config, target)
        self.taps, module = self._made(head, target)
        self.module = fill(module, head).to(target.device, target.dtype)
        packed = packed_dtype(target, precision)
        self.precision = packed or target.dtype
        if packed is not None:
            replace_linears(self.module, packed)
        self.rows = DraftRows(target, head.vocabulary, packed)
        self.graphs = DraftGraphs(target.graphs, self.steps, self.remembers)  # of all copies of this drafter that differ in shape

    def _made(self, head: HeadCheckpoint, target: Target) -> tuple[tuple[int, ...], nn.Module]:
        """Returns the taps and the empty module; sizes are read from a file, so whatever is wrong with them becomes one clear error."""
        try:
            return self.reads(head.config.sizes, target), self.build(head.config.sizes)
        except SpecvizError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError, RuntimeError, AssertionError) as error:
            told = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise BadFile(
                f"The sizes in {head.folder / CONFIG} are not those of a {self.method} head ({told}). Train it again or restore the folder."
            ) from error

    @abstractmethod
    def build(self, sizes: Mapping[str, Any]) -> nn.Module:
        """Returns the untrained module of the checkpoint's sizes."""

    def reads(self, sizes: Mapping[str, Any], target: Target) -> tuple[int, ...]:
        """Returns the taps that the head reads: by default the final norm's output."""
        return (target.layers,)

    def embed(self, tokens: Tensor) -> Tensor:
        """Returns the target's embeddings `[.., width]` of token ids."""
        embedding: Tensor = self.target.model.get_input_embeddings()(tokens)
        return embedding

    def no_states(self, rows: int) -> Tensor:
        """Returns zeros `[rows, taps * width]` in the place of the target's tapped states."""
        return torch.zeros(rows, self.target.hidden_size * len(self.taps), dtype=self.target.dtype, device=self.target.device)

    @property
    def levels(self) -> int:
        """How deep the head can draft."""
        return MAX_NODES

    @property
    def replayable(self) -> bool:
        """True for a head whose draft steps can be replayed."""
        return True

    @abstractmethod
    def steps(self, slots: int) -> Steps:
        """Returns new draft steps for drafting by replay, with room for so many committed tokens where the head `remembers` them."""

    @property
    def form(self) -> Form | None:
        """The shapes of a draft by replay; None where trees of this shape are grown step by step."""
        shape = self.shape.coming if isinstance(self.shape, Turning) else self.shape
        if not (self.replayable and isinstance(shape, Bound) and shape.thing is dynamic) or AUTO in shape.values.values():
            return None
        knobs = {**(dynamic.__kwdefaults__ or {}), **shape.values}
        if knobs.pop("stop_below"):
            return None
        depth = min(knobs.pop("depth"), self.levels)
        form = Form(depth=depth, **knobs, vocabulary=len(self.rows.vocabulary), top=TOP)
        return form if form.fits else None

    def ready(self, seen: Sequence[Feedback]) -> bool:
        form = self._form_of(seen)
        return form is None or self.graphs.ready(form, [_span(feedback) for feedback in seen])

    def capture(self, seen: Sequence[Feedback]) -> None:
        form = self._form_of(seen)
        if form is not None:
            self.graphs.capture(form, [_span(feedback) for feedback in seen])

    def lend(self, seen: Feedback) -> AbstractContextManager[DraftLease[Any] | None]:
        """Lends a row what it drafts with by replay; None where it has to draft step by step."""
        return nullcontext() if self._form_of([seen]) is None else self.graphs.lend(_span(seen))

    def replay(self, lease: DraftLease[Any], seen: Feedback, numbers: Sequence[int], states: Tensor) -> TokenTree | None:
        """Returns one round's tree from one replay; None when it has to be grown step by step. `numbers` and `states`: see the head's steps."""
        form = self._form_of([seen])
        if form is None:
            return None
        tree = self.graphs.draft(lease, form, seen.next_token, _span(seen).first, numbers=[min(self.levels, seen.room), *numbers], states=states)
        if tree is not None and isinstance(self.shape, Turning):
            self.shape.replayed(form)
        return tree

    def grow(self, seen: Feedback, step: Step) -> TokenTree:
        """Returns one round's tree, grown by `step`."""
        growth = Growth(
            seen.next_token,
            step,
            depth_limit=min(self.levels, seen.room),
            vocabulary=self.rows.vocabulary,
            sampler=sampler_for(seen, self.children, self.target.vocab_size),
        )
        tree: TokenTree = self.shape(growth)
        return tree

    def _form_of(self, seen: Sequence[Feedback]) -> Form | None:
        """Returns the form of a run: None too where children are drawn, which `dynamic` refuses."""
        return self.form if all(sampler_for(feedback, self.children, 0) is None for feedback in seen) else None

    def describe(self) -> dict[str, Any]:
        return {
            "trained_against": self.config.fingerprint.to_json(),
            "warnings": list(self.warnings),
            "draft_vocabulary": len(self.rows.vocabulary),
            "precision": str(self.precision).removeprefix("torch."),
            "draft_graphs": "off" if self.form is None else self.graphs.mode,
        }


class DraftRows:
    """The LM head of a draft: the target's own rows of the draft vocabulary, repacked on a CPU where that is possible."""

    def __init__(self, target: Target, vocabulary: Tensor, packed: torch.dtype | None) -> None:
        self.weight = draft_rows(target.model.get_output_embeddings(), vocabulary)
        self.vocabulary = vocabulary.to(self.weight.device)
        self._packed = None if packed is None else pack(self.weight.to(packed))

    def log_q(self, hidden: Tensor) -> Tensor:
        """Returns the draft's unwarped log-softmax `[rows, draft vocab]` in fp32 for predicted states `[rows, hidden]`."""
        logits = hidden @ self.weight.T if self._packed is None else multiply(hidden, self._packed)
        return logits.float().log_softmax(-1)


def packed_dtype(target: Target, precision: str) -> torch.dtype | None:
    """Returns the dtype in which the draft's layers are repacked; None where they cannot be, and run as the target's stock layers do."""
    if packable(target.model) is None:
        return torch.bfloat16 if precision == "bfloat16" or (precision == "fastest" and fast_bfloat16()) else torch.float32
    if precision not in ("fastest", str(target.dtype).removeprefix("torch.")):
        raise BadInput(f"precision={precision!r} is for drafting beside an fp32 target on a CPU; here the draft runs in {target.dtype}. Leave it at fastest.")
    return None


def head_folder(target: Target, method: str, checkpoint: str) -> Path:
    """Returns the given checkpoint folder, or the one that travels with the project for this target."""
    return user_path(checkpoint) if checkpoint else models_dir() / target.name / method


def _span(seen: Feedback) -> Span:
    """Returns how many tokens of a row are committed now, and may be at its last round."""
    return Span(len(seen.tokens) - 1, len(seen.tokens) + seen.room)


def sampler_for(seen: Feedback, children: str, vocab_size: int) -> Sampler | None:
    """Returns how children are drawn in this round: None for the draft's top k, always so at temperature 0."""
    if children == "top" or seen.sampling.greedy:
        return None
    return Sampler(seen.sampling, seen.uniform, seen.position, vocab_size)
