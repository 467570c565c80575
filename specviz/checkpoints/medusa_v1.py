from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.checkpoints._medusa import Layout, MedusaForm, full_rows, official_blocks
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import Head, Problem
from specviz.drafters.medusa_module import MedusaSizes

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles


class MedusaV1(MedusaForm):
    """Official Medusa heads, each with an LM matrix of its own (medusa_lm_head.pt)."""

    def matches(self, files: Files) -> bool:
        layout = self.layout(files)
        return layout is not None and layout.matrices > 0

    def matrix_problems(self, files: Files, layout: Layout) -> Iterator[Problem]:
        yield from super().matrix_problems(files, layout)
        if str(files.config.get("version")) == "2":
            yield Problem(
                "version",
                'config.json says version "2" (shared LM head), but the file holds LM matrices, which a version-2 loader ignores: remove the version.',
            )

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes medusa_lm_head.pt; heads that share the target's LM head get a copy of it each."""
        sizes, head = head.sizes_as(MedusaSizes), named(head, target)
        tensors = official_blocks(head, "")
        tensors |= {f"{i}.{sizes.blocks}.weight": rows for i, rows in enumerate(full_rows(head, target))}
        config = {"medusa_num_heads": sizes.heads, "medusa_num_layers": sizes.blocks, "base_model_name_or_path": head.base}
        write_checkpoint(out, head, config, tensors, "medusa_lm_head.pt")
