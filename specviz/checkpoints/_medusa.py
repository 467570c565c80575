"""What the forms of Medusa have in common: the count is read from the names, blocks of one head may be copies of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.checkpoints._checks import check_finite, check_head_count, check_hidden, check_shapes, check_vocabulary
from specviz.checkpoints._config import base_name, whole
from specviz.checkpoints._sidecar import restore
from specviz.checkpoints.base import ERROR, Format, Head, Problem
from specviz.drafters.medusa_module import MedusaSizes
from specviz.errors import BadFile, BadInput

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles


@dataclass(frozen=True)
class Layout:
    """How a form names its tensors, and what the file at hand holds: `matrices` LM matrices for `heads` heads of `blocks` blocks."""

    block: str  # with {head}, {block} and {part}
    matrix: str  # with {head} and {blocks}
    heads: int
    blocks: int
    hidden: int
    matrices: int
    rows: int

    def block_name(self, head: int, block: int, part: str) -> str:
        return self.block.format(head=head, block=block, part=part)

    def matrix_name(self, head: int) -> str:
        return self.matrix.format(head=head, blocks=self.blocks)

    def expected(self, biases: bool) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for head in range(self.heads):
            for block in range(self.blocks):
                shapes[self.block_name(head, block, "weight")] = (self.hidden, self.hidden)
                if biases:
                    shapes[self.block_name(head, block, "bias")] = (self.hidden,)
        return shapes | {self.matrix_name(head): (self.rows, self.hidden) for head in range(self.matrices)}


def find_layout(files: Files, block: str, matrix: str) -> Layout | None:
    """Returns the layout of the names given by two patterns; None when no block has such a name."""
    pattern = re.compile(re.escape(block).replace(r"\{head\}", r"(\d{1,4})").replace(r"\{block\}", r"(\d{1,4})").replace(r"\{part\}", "weight"))
    found = [(int(m.group(1)), int(m.group(2)), name) for name in files.entries if (m := pattern.fullmatch(name))]
    if not found:
        return None
    heads, blocks = 1 + max(h for h, _, _ in found), 1 + max(b for _, b, _ in found)
    hidden = (files.shape(found[0][2]) or (0,))[-1]
    names = [matrix.format(head=head, blocks=blocks) for head in range(heads)]
    matrices = sum(name in files for name in names)
    return Layout(block, matrix, heads, blocks, hidden, matrices, (files.shape(names[0]) or (0,))[0])


def copied_blocks(files: Files, layout: Layout) -> list[int]:
    """Returns the heads whose blocks differ: the official code runs ONE block several times, so its files hold copies."""
    names = [[layout.block_name(head, block, "weight") for block in range(layout.blocks)] for head in range(layout.heads)]
    return [i for i, row in enumerate(names) if all(n in files for n in row) and any(not torch.equal(files.tensor(row[0]), files.tensor(n)) for n in row[1:])]


class MedusaForm(Format):
    """The official names: blocks first, then the LM matrix, in one list a head."""

    method = "medusa"
    prefix = ""
    block, matrix = "{head}.{block}.linear.{part}", "{head}.{blocks}.weight"

    def layout(self, files: Files) -> Layout | None:
        return find_layout(files, self.prefix + self.block, self.prefix + self.matrix)

    def found(self, files: Files) -> Layout:
        layout = self.layout(files)
        if layout is None:
            raise BadFile(f"{files.folder} holds no Medusa heads.")
        return layout

    def sizes(self, files: Files) -> dict[str, Any]:
        layout = self.found(files)
        vocab = {"vocabulary": layout.rows} if layout.matrices else {}
        return {"heads": layout.heads, "blocks per head": layout.blocks, "hidden": layout.hidden, "LM matrices": layout.matrices} | vocab

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        layout = self.found(files)
        yield from check_shapes(files, layout.expected(biases=True))
        yield from check_head_count(files.config.get("medusa_num_heads"), layout.heads, "medusa_num_heads")
        yield from self.matrix_problems(files, layout)
        yield from check_hidden(layout.hidden, target)
        if layout.matrices:
            yield from check_vocabulary(layout.rows, target, "Its LM matrices have")
        yield from block_problems(files, layout)
        yield from check_finite(files, layout.expected(biases=True))

    def matrix_problems(self, files: Files, layout: Layout) -> Iterator[Problem]:
        if layout.matrices not in (0, layout.heads):
            yield Problem(
                "missing_tensors",
                f"The file holds {layout.heads} heads but {layout.matrices} LM matrices: expected one for each or none, fetch it again.",
                ERROR,
            )

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        layout = self.found(files)
        vocab = layout.rows or known_vocabulary(files, target)
        sizes = MedusaSizes(layout.hidden, layout.heads, layout.blocks, vocab, layout.matrices)
        weights = block_weights(files, layout)
        if layout.matrices:
            weights["rows"] = torch.stack([files.tensor(layout.matrix_name(head)) for head in range(layout.matrices)])
        head = Head(self.method, sizes, weights, torch.arange(vocab), base=base_name(files.config))
        return restore(head, files.folder)


def block_problems(files: Files, layout: Layout) -> Iterator[Problem]:
    different = copied_blocks(files, layout)
    if different:
        yield Problem(
            "blocks_differ",
            f"The blocks of head {different[0]} differ, while the official code runs one block {layout.blocks} times and would keep the last: such a head runs here and in vLLM, not there.",
        )


def block_weights(files: Files, layout: Layout) -> dict[str, Tensor]:
    """Returns the blocks under our names; a block without bias gets zeros."""
    weights = {}
    for head in range(layout.heads):
        for block in range(layout.blocks):
            mine, bias = f"heads.{head}.{block}.linear", layout.block_name(head, block, "bias")
            weights[f"{mine}.weight"] = files.tensor(layout.block_name(head, block, "weight"))
            weights[f"{mine}.bias"] = files.tensor(bias) if bias in files else torch.zeros(layout.hidden)
    return weights


def known_vocabulary(files: Files, target: TargetFiles | None) -> int:
    """Returns the vocabulary size of heads that come without LM matrices."""
    if target is not None:
        return target.vocab
    if "vocab_size" in files.config:
        return whole(files.config, "vocab_size")
    raise BadInput("These heads share the target's LM head and do not say how many tokens it has. Name the target: --target FOLDER.")


def official_blocks(head: Head, prefix: str) -> dict[str, Tensor]:
    """Returns the blocks under the official names; raises BadInput for heads whose blocks differ."""
    sizes = head.sizes_as(MedusaSizes)
    found: dict[str, Tensor] = {}
    for i in range(sizes.heads):
        for part in ("weight", "bias"):
            row = [head.weights[f"heads.{i}.{b}.linear.{part}"] for b in range(sizes.blocks)]
            if any(not torch.equal(row[0], other) for other in row[1:]):
                raise BadInput(f"Head {i} has {sizes.blocks} different blocks, and the official code runs one block several times. Use --to medusa_vllm.")
            found |= {f"{prefix}{i}.{b}.linear.{part}": tensor for b, tensor in enumerate(row)}
    return found


def full_rows(head: Head, target: TargetFiles | None) -> list[Tensor]:
    """Returns the LM matrix of every head over the whole vocabulary: its own, or the target's."""
    sizes = head.sizes_as(MedusaSizes)
    if sizes.own_rows:
        if not torch.equal(head.vocabulary, torch.arange(len(head.vocabulary))):
            raise BadInput("This head has LM matrices over a reduced vocabulary, which the official form cannot hold. Use --to medusa_vllm.")
        rows = head.weights["rows"]
        return [rows[i if len(rows) > 1 else 0] for i in range(sizes.heads)]
    if target is None:
        raise BadInput("This head shares the target's LM head, whose rows the format needs. Name the target: --target FOLDER.")
    return [target.rows] * sizes.heads
