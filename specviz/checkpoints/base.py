"""What all formats share: the common record of a head, what a format does, and how a problem is reported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor, nn

from specviz.drafters._eagle3_module import Eagle3Sizes
from specviz.drafters._hydra_module import HydraSizes
from specviz.drafters.eagle_module import EagleSizes
from specviz.drafters.head_sizes import Sizes, make_module
from specviz.drafters.medusa_module import MedusaSizes
from specviz.errors import BadFile, BadInput
from specviz.sources import Fingerprint

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

S = TypeVar("S", MedusaSizes, HydraSizes, EagleSizes, Eagle3Sizes)
ERROR, WARNING = "error", "warning"
FP16_LIMIT = 65504.0


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a checkpoint: `text` is a sentence that says what, and what to do.

    level  "error": it cannot be used as it is; "warning": it can, but some loader would take it another way.
    """

    name: str
    text: str
    level: str = WARNING


@dataclass(frozen=True)
class Head:
    """A head in our own terms, wherever it came from.

    sizes         of our module; `build` makes that module and fills it
    weights       under our module's names, in the dtype of the file
    vocabulary    [draft vocab] target token ids of the head's columns
    taps          layers whose entering state is read (layer count = the final norm's output); () = the method's default, depth unknown
    base          the target that the checkpoint names, if any
    fingerprint   of that target, if the checkpoint has it
    notes         what was assumed or repaired on the way
    """

    method: str
    sizes: Sizes
    weights: Mapping[str, Tensor]
    vocabulary: Tensor
    taps: tuple[int, ...] = ()
    base: str | None = None
    fingerprint: Fingerprint | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def sizes_as(self, kind: type[S]) -> S:
        """Returns the sizes as those of one method; raises BadInput for a head of another."""
        if not isinstance(self.sizes, kind):
            raise BadInput(f"This is a {self.method} head, expected one with {kind.__name__}.")
        return self.sizes


class Format(ABC):
    """A checkpoint format. The first line of a format's docstring is its description in the docs and the doctor.

    `target` is the folder of the target where one was named; a format must say what it cannot know without it.
    """

    method: ClassVar[str]

    @abstractmethod
    def matches(self, files: Files) -> bool:
        """True for a checkpoint of this format, told from its config and its tensors' names and shapes alone."""

    @abstractmethod
    def sizes(self, files: Files) -> dict[str, Any]:
        """Returns what the doctor prints: counts and widths as the file has them."""

    @abstractmethod
    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        """Yields everything that is wrong or doubtful."""

    @abstractmethod
    def read(self, files: Files, target: TargetFiles | None) -> Head:
        """Returns the head; raises BadFile for a damaged one, BadInput where the target must be named."""

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes the head into the folder `out`; raises BadInput saying why this head has no such form."""
        raise BadInput(f"Writing this format is not supported. {type(self).__name__} heads can only be read.")


def build(head: Head) -> nn.Module:
    """Returns our module with the head's weights in fp32, ready to run. Raises BadFile naming the tensors that do not fit."""
    module = make_module(head.method, head.sizes)
    try:
        module.load_state_dict({name: tensor.float() for name, tensor in head.weights.items()})
    except RuntimeError as problem:
        raise BadFile(f"The {head.method} head's tensors do not fit its sizes: {problem}") from problem
    return module.eval().requires_grad_(False)
