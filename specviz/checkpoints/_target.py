"""The target's folder as converters need it: sizes, embeddings and LM-head rows, without loading the model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from specviz.checkpoints._config import read_rope, whole
from specviz.checkpoints._files import Files, open_files
from specviz.errors import BadFile, BadInput
from specviz.sources import Fingerprint, hash_folder, locate


class TargetFiles:
    """An opened target folder; single-file and tied checkpoints (no index, no lm_head) are as good as any."""

    def __init__(self, name: str, files: Files) -> None:
        self.name, self.files = name, files
        config = files.config.get("text_config", files.config)
        self.config: Mapping[str, Any] = config if isinstance(config, dict) else {}
        self.hidden = whole(self.config, "hidden_size")
        self.layers = whole(self.config, "num_hidden_layers")
        self.vocab = whole(self.config, "vocab_size")
        self.rope_theta = read_rope(self.config).theta
        self.architectures = list(files.config.get("architectures") or ["LlamaForCausalLM"])

    @cached_property
    def embedding(self) -> Tensor:
        """Token embeddings `[vocab, hidden]`."""
        return self.files.tensor(self._find("embed_tokens.weight"))

    @cached_property
    def rows(self) -> Tensor:
        """LM-head rows `[vocab, hidden]`: the embeddings in a model that ties them."""
        names = [name for name in self.files.entries if name.endswith("lm_head.weight") and "medusa" not in name and "hydra" not in name]
        return self.files.tensor(names[0]) if names else self.embedding

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(hash_folder(self.files.folder) or "unknown")

    @property
    def default_taps(self) -> tuple[int, int, int]:
        """EAGLE-3's layers: the states entering 2, L//2 and L-3."""
        return (2, self.layers // 2, self.layers - 3)

    def _find(self, ending: str) -> str:
        names = [name for name in self.files.entries if name.endswith(ending)]
        if not names:
            raise BadFile(f"The target {self.name} has no tensor that ends in {ending!r}. Expected a Llama-like checkpoint.")
        return min(names, key=len)


def open_target(name: str | Path) -> TargetFiles:
    """Opens a target by its name under models/ or its folder; raises BadInput for a hub id, which has no files here."""
    place = Path(locate(str(name)))
    if not place.is_dir():
        raise BadInput(f"{name} is a hub id. Download it first and give its folder: converting needs the target's own files.")
    try:
        return TargetFiles(place.name, open_files(place))
    except BadFile as problem:
        raise BadFile(f"{place} cannot be read as a target: {problem}") from None
