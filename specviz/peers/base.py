"""What a peer is: it loads a model and answers prompts, in a process of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from specviz.errors import SpecvizError


class PeerFailed(SpecvizError):
    """A peer cannot be run here, or its process ended; the message is what its row of the table says."""


@dataclass(frozen=True)
class Job:
    """What every peer is told before it loads: the same weights, dtype, device and number of threads for all.

    `target` is the name that `Target.load` takes, `source` the folder (or hub id) that it stands for, `eos` the end tokens.
    `spec` is a drafter of ours and empty for everybody else.
    """

    target: str
    source: str
    device: str
    dtype: str
    threads: int
    eos: tuple[int, ...] = ()
    spec: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Job:
        return cls(**{**record, "eos": tuple(record["eos"])})


@dataclass(frozen=True)
class Answer:
    """The new tokens of one prompt, and how many target forwards gave them (None: this peer does not tell)."""

    tokens: tuple[int, ...]
    forwards: int | None = None


class Peer(ABC):
    """One way to decode greedily; the docstring's first line says how it was set up.

    `label` is its name in tables, `packages` are the versions it counts on, `requires` what pip installs into a throw-away
    environment because this project does not depend on it. `notes` hold what a reader of the numbers has to know.
    """

    label: ClassVar[str]
    packages: ClassVar[Sequence[str]] = ("torch", "transformers")
    requires: ClassVar[Sequence[str]] = ()
    notes: ClassVar[str] = ""

    @classmethod
    def missing(cls, job: Job) -> str | None:
        """Returns in words why this peer cannot run here, None when it can; asked before any process is started."""
        return None

    @abstractmethod
    def load(self, job: Job) -> None:
        """Loads the model; everything that is not decoding happens here."""

    @abstractmethod
    def generate(self, ids: Sequence[int], max_new_tokens: int) -> Answer:
        """Decodes one prompt at temperature 0; the worker takes the time around this call."""
