from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.checkpoints._medusa import Layout, MedusaForm, official_blocks
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import Head, Problem
from specviz.drafters.medusa_module import MedusaSizes
from specviz.errors import BadInput

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles


class MedusaShared(MedusaForm):
    """Official Medusa heads of version 2, which share the target's LM head (medusa_lm_head.safetensors)."""

    def matches(self, files: Files) -> bool:
        layout = self.layout(files)
        return layout is not None and layout.matrices == 0

    def matrix_problems(self, files: Files, layout: Layout) -> Iterator[Problem]:
        if str(files.config.get("version")) != "2":
            yield Problem(
                "version",
                'The heads have no LM matrices of their own but config.json lacks "version": "2", without which loaders look for medusa_lm_head.pt and its matrices: add it.',
            )

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes medusa_lm_head.safetensors; raises BadInput for heads that have LM matrices of their own."""
        sizes, head = head.sizes_as(MedusaSizes), named(head, target)
        if sizes.own_rows:
            raise BadInput("These heads have LM matrices of their own, which the shared form cannot hold. Use --to medusa_v1.")
        config = {"version": "2", "medusa_num_heads": sizes.heads, "medusa_num_layers": sizes.blocks, "base_model_name_or_path": head.base}
        write_checkpoint(out, head, config, official_blocks(head, ""), "medusa_lm_head.safetensors")
