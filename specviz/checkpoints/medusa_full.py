from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specviz.checkpoints._checks import check_shapes
from specviz.checkpoints._medusa import MedusaForm
from specviz.checkpoints.base import Problem

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles


class MedusaFull(MedusaForm):
    """A whole model with Medusa heads inside (medusa-1.0), of which the heads are read; the rest is an ordinary target."""

    prefix = "medusa_head."

    def matches(self, files: Files) -> bool:
        return self.layout(files) is not None

    def sizes(self, files: Files) -> dict[str, Any]:
        return super().sizes(files) | {"tensors of the model": len(files.entries) - len(self.found(files).expected(biases=True))}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        layout = self.found(files)
        rest = [name for name in files.entries if not name.startswith(self.prefix)]
        yield from (p for p in super().problems(files, target) if p.name != "unexpected_tensors")
        yield from (p for p in check_shapes(files, layout.expected(biases=True), rest) if p.name == "unexpected_tensors")
