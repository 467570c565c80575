from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.checkpoints._checks import check_finite, check_head_count, check_hidden, check_shapes, check_vocabulary
from specviz.checkpoints._config import base_name, whole
from specviz.checkpoints._medusa import Layout, MedusaForm, block_weights, find_layout
from specviz.checkpoints._sidecar import restore
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import ERROR, Head, Problem
from specviz.drafters.medusa_module import MedusaSizes
from specviz.errors import BadFile, BadInput

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

MAP = "token_map"


class MedusaVllm(MedusaForm):
    """Medusa heads as vLLM loads them; vLLM drafts the top-1 chain only, no tree."""

    block, matrix = "blocks.{head}.layers.{block}.{part}", "lm_heads.{head}.weight"

    def layout(self, files: Files) -> Layout | None:
        return find_layout(files, self.block, self.matrix) or find_layout(files, "medusa_heads." + self.block, "medusa_heads." + self.matrix)

    def matches(self, files: Files) -> bool:
        return self.layout(files) is not None

    def sizes(self, files: Files) -> dict[str, Any]:
        return super().sizes(files) | {"token_map": (files.shape(MAP) or (0,))[0]}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        layout, config = self.found(files), files.config
        biases = any(layout.block_name(head, 0, "bias") in files for head in range(layout.heads))
        yield from check_shapes(files, layout.expected(biases), [MAP])
        said = config.get("num_heads", config.get("medusa_num_heads"))
        yield from check_head_count(said, layout.heads, "num_heads")
        yield from check_head_count(config.get("num_hidden_layers"), layout.blocks, "num_hidden_layers")
        yield from _bias_problems(config, biases)
        yield from _matrix_problems(config, layout)
        yield from check_hidden(layout.hidden, target)
        yield from check_vocabulary(whole(config, "vocab_size", target.vocab if target else layout.rows or 1), target, "config.json says")
        yield from _map_problems(files, layout)
        yield from check_finite(files, layout.expected(biases))

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        layout = self.found(files)
        vocab = whole(files.config, "vocab_size", target.vocab if target else layout.rows or None)
        vocabulary = files.tensor(MAP).long() if MAP in files else torch.arange(vocab)
        sizes = MedusaSizes(layout.hidden, layout.heads, layout.blocks, len(vocabulary), layout.matrices)
        weights = block_weights(files, layout)
        if layout.matrices:
            weights["rows"] = torch.stack([_fitting(files.tensor(layout.matrix_name(i)), vocabulary) for i in range(layout.matrices)])
        head = Head(self.method, sizes, weights, vocabulary, base=base_name(files.config))
        return restore(head, files.folder)

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes config.json and model.safetensors; a reduced vocabulary becomes a token_map, shared rows one matrix for all heads."""
        sizes, head = head.sizes_as(MedusaSizes), named(head, target)
        tensors = {_foreign(name): tensor for name, tensor in head.weights.items() if name != "rows"}
        rows = head.weights["rows"] if sizes.own_rows else _target_rows(target, head.vocabulary)[None]
        tensors |= {f"lm_heads.{i}.weight": row for i, row in enumerate(rows)}
        vocab = target.vocab if target else len(head.vocabulary)
        if len(head.vocabulary) < vocab:
            tensors[MAP] = head.vocabulary.long()
        config = {
            "model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": sizes.hidden, "vocab_size": vocab, "num_heads": sizes.heads,
            "num_hidden_layers": sizes.blocks, "max_paths": 64, "topk": 10, "truncated_vocab_size": len(head.vocabulary), "medusa_fc_bias": True,
            "original_lm_head": len(rows) == 1, "base_model_name_or_path": head.base, "torch_dtype": "float16",
        }  # fmt: skip
        write_checkpoint(out, head, config, tensors)


def _target_rows(target: TargetFiles | None, vocabulary: Tensor) -> Tensor:
    if target is None:
        raise BadInput("This head shares the target's LM head, whose rows the format needs. Name the target: --target FOLDER.")
    return target.rows[vocabulary]


def _foreign(name: str) -> str:
    _, head, block, _, part = name.split(".")
    return f"blocks.{head}.layers.{block}.{part}"


def _fitting(rows: Tensor, vocabulary: Tensor) -> Tensor:
    """Rows come already cut to the token map, or whole; vLLM takes both."""
    if len(rows) == len(vocabulary):
        return rows
    if len(rows) <= int(vocabulary.max()):
        raise BadFile(f"token_map names token {int(vocabulary.max())}, but the LM matrix has {len(rows)} rows. They belong to different heads.")
    return rows[vocabulary]


def _bias_problems(config: Any, biases: bool) -> Iterator[Problem]:
    if biases and not config.get("medusa_fc_bias", False):
        yield Problem(
            "fc_bias_dropped",
            "The blocks have biases but config.json lacks medusa_fc_bias: true, so vLLM drops them without a word and accepts less: add it (they are used here).",
        )
    if not biases and config.get("medusa_fc_bias", False):
        yield Problem(
            "fc_bias_missing",
            "config.json says medusa_fc_bias: true but the file holds no biases, so vLLM would run uninitialised ones: set it to false, or convert the official head again.",
        )


def _matrix_problems(config: Any, layout: Layout) -> Iterator[Problem]:
    shared = bool(config.get("original_lm_head", False))
    if layout.matrices not in (0, 1, layout.heads):
        yield Problem(
            "missing_tensors",
            f"The file holds {layout.heads} heads but {layout.matrices} LM matrices: expected one for each, or one with original_lm_head: true.",
            ERROR,
        )
    elif layout.matrices == 1 and layout.heads > 1 and not shared:
        yield Problem(
            "lm_head_shared",
            "The file holds one LM matrix for all heads but config.json lacks original_lm_head: true, so vLLM would run the other heads uninitialised: add it.",
        )
    elif layout.matrices == 0:
        yield Problem("lm_head_missing", "The file holds no LM matrix, which vLLM needs: convert it here with --to medusa_vllm and --target.")


def _map_problems(files: Files, layout: Layout) -> Iterator[Problem]:
    cut, vocab = (whole(files.config, name) if files.config.get(name) is not None else None for name in ("truncated_vocab_size", "vocab_size"))
    if MAP in files and cut is not None and files.shape(MAP) != (cut,):
        yield Problem(
            "token_map", f"token_map has {files.shape(MAP)[0]} entries, config.json says truncated_vocab_size = {cut}: set it to the length of token_map."
        )
    if MAP in files and (cut is None or cut == vocab):
        yield Problem(
            "token_map",
            "The file has a token_map but config.json no smaller truncated_vocab_size, so vLLM ignores the map and drafts wrong tokens: set it to the length of token_map.",
        )
    if MAP not in files and cut is not None and vocab is not None and cut < vocab:
        yield Problem(
            "token_map",
            f"config.json says truncated_vocab_size = {cut} of {vocab}, but there is no token_map to name those tokens: convert the head again.",
            ERROR,
        )
    if MAP not in files and layout.matrices and vocab is not None and layout.rows != vocab:
        yield Problem("vocabulary_mismatch", f"The LM matrix has {layout.rows} rows, config.json says {vocab} tokens: they are of different heads.", ERROR)
