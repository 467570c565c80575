from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file

from specviz.checkpoints._medusa import Layout, MedusaForm, named, official_blocks, prepare
from specviz.checkpoints._sidecar import write_sidecar
from specviz.checkpoints.base import Head, Problem, half
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
        assert isinstance(head.sizes, MedusaSizes)
        if head.sizes.own_rows:
            raise BadInput("These heads have LM matrices of their own, which the shared form cannot hold. Use --to medusa_v1.")
        head = named(head, target)
        tensors = {name: half(name, tensor).clone() for name, tensor in official_blocks(head, "").items()}
        config = {"version": "2", "medusa_num_heads": head.sizes.heads, "medusa_num_layers": head.sizes.blocks, "base_model_name_or_path": head.base}
        save_file(tensors, prepare(out) / "medusa_lm_head.safetensors")
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        write_sidecar(head, out)
