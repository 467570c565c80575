from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.checkpoints._config import base_name
from specviz.checkpoints._eagle3 import FC, eagle3_problems, find_layout, foreign_tensors, found_taps, layer_and_flags, read_eagle3
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import Format, Head, Problem

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles


class Eagle3(Format):
    """Official EAGLE-3 heads, also as SpecForge and SGLang write them, with or without a reduced vocabulary."""

    method = "eagle3"

    def matches(self, files: Files) -> bool:
        layered = "midlayer.self_attn.q_proj.weight" in files or "layers.0.hidden_norm.weight" in files
        return layered and FC in files and "speculators_model_type" not in files.config

    def sizes(self, files: Files) -> dict[str, Any]:
        layout = find_layout(files, files.config, files.config)
        kept = {key: layout.sizes[key] for key in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "rope_theta")}
        taps = list(found_taps(files.config, None)) or "default (2, L//2, L-3)"
        return kept | {"vocabulary": layout.vocab, "draft vocabulary": layout.sizes["draft_vocab"], "states read": layout.tap_count, "taps": taps}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        yield from eagle3_problems(files, files.config, files.config, target)

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        return read_eagle3(files, files.config, files.config, target, base_name(files.config))

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes config.json and model.safetensors; the embeddings are left out, as they are the target's."""
        head = named(head, target)
        layer, flags = layer_and_flags(head, target)
        tensors = foreign_tensors(head, "midlayer.", target)
        config = {"architectures": ["LlamaForCausalLMEagle3"], **layer, **flags, "base_model_name_or_path": head.base}
        write_checkpoint(out, head, config, tensors)
