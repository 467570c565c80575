from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specviz.checkpoints._medusa import Layout, MedusaForm, full_rows, named, official_blocks, prepare
from specviz.checkpoints._sidecar import write_sidecar
from specviz.checkpoints.base import Head, Problem, half
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
        assert isinstance(head.sizes, MedusaSizes)
        head = named(head, target)
        tensors = {name: half(name, tensor) for name, tensor in official_blocks(head, "").items()}
        for i, rows in enumerate(full_rows(head, target)):
            tensors[f"{i}.{head.sizes.blocks}.weight"] = half("LM head", rows)
        config = {"medusa_num_heads": head.sizes.heads, "medusa_num_layers": head.sizes.blocks, "base_model_name_or_path": head.base}
        torch.save(tensors, prepare(out) / "medusa_lm_head.pt")
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        write_sidecar(head, out)
