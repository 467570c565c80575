from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.checkpoints._checks import check_finite, check_head_count, check_hidden, check_shapes, check_vocabulary
from specviz.checkpoints._config import base_name, layer_sizes, offset
from specviz.checkpoints._llama import layer_names, layer_shapes, read_layer
from specviz.checkpoints._medusa import known_vocabulary
from specviz.checkpoints._sidecar import restore
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import ERROR, Format, Head, Problem
from specviz.drafters._hydra_module import HydraSizes
from specviz.drafters._layer import LayerSizes
from specviz.errors import BadFile, BadInput

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

BLOCK = re.compile(r"hydra_mlp\.(\d{1,4})\.(\d{1,4})\.linear\.weight")
PREFIX = "prefix_embeding_layer."  # spelled so in the official files
LAYER, NORMS = PREFIX + "layers.0.", ("input_layernorm", "post_attention_layernorm")
IGNORED = ("input_embed_fn.weight", PREFIX + "embed_tokens.weight")  # the target's embeddings, and a table that is never read
RUNS = ("mlp", "prefix-mlp")


@dataclass(frozen=True)
class Layout:
    """What a file holds: `places` are the indices of a head's blocks, which dropout layers in between shift to 1, 3, 5 ..."""

    heads: int
    places: tuple[int, ...]
    hidden: int
    grounded: bool
    prefixed: bool
    rows: tuple[str, ...]  # name of each head's LM head, without .weight
    vocab: int

    def expected(self) -> dict[str, tuple[int, ...]]:
        d = self.hidden
        shapes: dict[str, tuple[int, ...]] = {}
        for head in range(self.heads):
            for k, place in enumerate(self.places):
                wide = (head + 2) * d if self.grounded and k == 0 else d
                for part in ("linear", "res_connection") if self.grounded and k == 0 else ("linear",):
                    shapes |= {f"hydra_mlp.{head}.{place}.{part}.weight": (d, wide), f"hydra_mlp.{head}.{place}.{part}.bias": (d,)}
        for name in self.rows:
            shapes |= {f"{name}.weight": (self.vocab, d), f"{name}.bias": (self.vocab,)}
        return shapes


class Hydra(Format):
    """Official Hydra heads, plain (mlp) or with a prefix-attention layer (prefix-mlp)."""

    method = "hydra"

    def matches(self, files: Files) -> bool:
        return "hydra_head_arch" in files.config or any(BLOCK.fullmatch(name) for name in files.entries)

    def layout(self, files: Files) -> Layout:
        found = [(int(m.group(1)), int(m.group(2))) for name in files.entries if (m := BLOCK.fullmatch(name))]
        if not found:
            raise BadFile(f"{files.folder} holds no hydra_mlp heads, only {files.config.get('hydra_head_arch')!r} ones. Expected one of: {', '.join(RUNS)}.")
        heads = 1 + max(head for head, _ in found)
        places = tuple(sorted({place for _, place in found}))
        first = f"hydra_mlp.0.{places[0]}"
        rows = tuple(n for i in range(heads) for n in (f"hydra_lm_head.{i}", f"hydra_lm_head.{i}.1") if f"{n}.weight" in files)
        vocab = (files.shape(f"{rows[0]}.weight") if rows else (0,))[0]
        hidden = (files.shape(f"{first}.linear.weight") or (0,))[0]
        prefixed = any(name.startswith(LAYER) for name in files.entries)
        return Layout(heads, places, hidden, f"{first}.res_connection.weight" in files, prefixed, rows, vocab)

    def sizes(self, files: Files) -> dict[str, Any]:
        layout = self.layout(files)
        found = {"heads": layout.heads, "blocks per head": len(layout.places), "hidden": layout.hidden, "prefix attention": layout.prefixed}
        return found | {"reads drafted tokens": layout.grounded, "LM matrices": len(layout.rows), "vocabulary": layout.vocab}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        arch = files.config.get("hydra_head_arch")
        if arch is not None and arch not in RUNS:
            yield Problem("architecture", f"Hydra heads of type {arch!r} are not supported: expected one of {', '.join(RUNS)}.", ERROR)
            return
        layout, config = self.layout(files), files.config
        expected = layout.expected()
        if layout.prefixed:
            expected |= self._prefix_shapes(target)
            if target is None:
                yield Problem(
                    "target_needed",
                    "The prefix-attention layer takes its number of heads and its rotary base from the target's config: name the target to check and use it.",
                )
        known = [name for name in files.entries if name.startswith(PREFIX)] if target is None else []
        yield from check_shapes(files, expected, [*IGNORED, *known])
        yield from check_head_count(config.get("hydra_num_heads"), layout.heads, "hydra_num_heads")
        yield from _flag_problems(config, layout)
        yield from check_hidden(layout.hidden, target)
        if target and offset(config, "hidden_state_offset") > target.layers:
            yield Problem(
                "wrong_taps",
                f"The head reads the state {config['hidden_state_offset']} layers before the end, and {target.name} has {target.layers}: use the head with its own target.",
                ERROR,
            )
        if layout.rows:
            yield from check_vocabulary(layout.vocab, target, "Its LM heads have")
        yield from _block_problems(files, layout)
        yield from check_finite(files, expected)

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        layout = self.layout(files)
        vocab = layout.vocab or known_vocabulary(files, target)
        weights = _read_blocks(files, layout)
        prefix = None
        if layout.prefixed:
            prefix = LayerSizes(**self._prefix_sizes(target))
            weights |= {f"prefix.{name}": tensor for name, tensor in read_layer(files, LAYER, NORMS, False).items()}
            weights["prefix.norm.weight"] = files.tensor(PREFIX + "norm.weight")
        for i, name in enumerate(layout.rows):
            weights |= {f"rows.{i}.{part}": files.tensor(f"{name}.{part}") for part in ("weight", "bias")}
        deep = offset(files.config, "hidden_state_offset")
        sizes = HydraSizes(layout.hidden, layout.heads, len(layout.places), vocab, layout.grounded, deep, bool(layout.rows), prefix)
        taps = () if target is None else (target.layers - deep,)
        head = Head(self.method, sizes, weights, torch.arange(vocab), taps, base_name(files.config))
        return restore(head, files.folder)

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes hydra_lm_head.pt; heads that share the target's LM head get a copy of it each."""
        sizes, head = head.sizes_as(HydraSizes), named(head, target)
        tensors = {_foreign(name, sizes): tensor for name, tensor in _copies(head, sizes).items() if not name.startswith("rows.")}
        tensors |= _lm_heads(head, sizes, target)
        config = {
            "hydra_num_heads": sizes.heads, "hydra_num_layers": sizes.blocks, "hydra_head_arch": "prefix-mlp" if sizes.prefix else "mlp",
            "grounded_heads": sizes.grounded, "hidden_state_offset": sizes.state_offset, "base_model_name_or_path": head.base,
        }  # fmt: skip
        write_checkpoint(out, head, config, tensors, "hydra_lm_head.pt")

    def _prefix_sizes(self, target: TargetFiles | None) -> dict[str, Any]:
        if target is None:
            raise BadInput(
                "The prefix-attention layer takes its number of heads and its rotary base from the target's config. Name the target: --target FOLDER."
            )
        return layer_sizes(target.config, target.vocab)

    def _prefix_shapes(self, target: TargetFiles | None) -> dict[str, tuple[int, ...]]:
        if target is None:
            return {}
        sizes = self._prefix_sizes(target)
        shapes = layer_shapes(sizes, sizes["hidden"], NORMS, False)
        return {LAYER + name: shape for name, shape in shapes.items()} | {PREFIX + "norm.weight": (sizes["hidden"],)}


def _read_blocks(files: Files, layout: Layout) -> dict[str, Tensor]:
    weights = {}
    for head in range(layout.heads):
        for k, place in enumerate(layout.places):
            for part in ("weight", "bias"):
                weights[f"heads.{head}.{k}.linear.{part}"] = files.tensor(f"hydra_mlp.{head}.{place}.linear.{part}")
                if layout.grounded and k == 0:
                    weights[f"heads.{head}.0.skip.{part}"] = files.tensor(f"hydra_mlp.{head}.{place}.res_connection.{part}")
    return weights


def _flag_problems(config: Mapping[str, Any], layout: Layout) -> Iterator[Problem]:
    blocks = config.get("hydra_num_layers")
    if blocks is not None and blocks != len(layout.places):
        yield Problem(
            "wrong_block_count",
            f"config.json says hydra_num_layers = {blocks}, the file holds {len(layout.places)} blocks a head: the file is followed here, correct config.json for other loaders.",
        )
    if "grounded_heads" in config and bool(config["grounded_heads"]) != layout.grounded:
        yield Problem(
            "grounded",
            f"config.json says grounded_heads = {config['grounded_heads']}, but the heads {'do' if layout.grounded else 'do not'} take embeddings: correct config.json.",
        )
    if config.get("hydra_head_arch") is not None and (config["hydra_head_arch"] == "prefix-mlp") != layout.prefixed:
        yield Problem(
            "architecture",
            f"config.json says hydra_head_arch = {config['hydra_head_arch']!r}, but the file {'holds a' if layout.prefixed else 'holds no'} prefix layer: correct config.json, the official loader skips what does not fit without a word.",
        )
    if len(layout.rows) not in (0, layout.heads):
        yield Problem("missing_tensors", f"The file holds {layout.heads} heads but {len(layout.rows)} LM heads: expected one for each, fetch it again.", ERROR)


def _block_problems(files: Files, layout: Layout) -> Iterator[Problem]:
    later = layout.places[1:]
    for head in range(layout.heads):
        names = [f"hydra_mlp.{head}.{place}.linear.weight" for place in later]
        if len(names) > 1 and all(n in files for n in names) and any(not torch.equal(files.tensor(names[0]), files.tensor(n)) for n in names[1:]):
            yield Problem(
                "blocks_differ",
                f"The later blocks of head {head} differ, while the official code runs one block {len(later)} times and would keep the last: such a head runs here, not there.",
            )
            return


def _copies(head: Head, sizes: HydraSizes) -> Mapping[str, Tensor]:
    for i in range(sizes.heads):
        for part in ("weight", "bias"):
            row = [head.weights[f"heads.{i}.{k}.linear.{part}"] for k in range(1 if sizes.grounded else 0, sizes.blocks)]
            if any(not torch.equal(row[0], other) for other in row[1:]):
                raise BadInput(
                    f"Head {i} has {len(row)} different later blocks, and the official code runs one block several times. It cannot be written in that form."
                )
    return head.weights


def _foreign(name: str, sizes: HydraSizes) -> str:
    kind, _, rest = name.partition(".")
    if kind == "prefix":
        return PREFIX + rest if rest == "norm.weight" else LAYER + layer_names(NORMS, False)[rest]
    head, k, part, end = rest.split(".")
    place = 2 * int(k) + 1 if sizes.prefix else int(k)
    return f"hydra_mlp.{head}.{place}.{'res_connection' if part == 'skip' else part}.{end}"


def _lm_heads(head: Head, sizes: HydraSizes, target: TargetFiles | None) -> dict[str, Tensor]:
    shift = ".1" if sizes.prefix else ""
    if sizes.own_rows:
        if not torch.equal(head.vocabulary, torch.arange(len(head.vocabulary))):
            raise BadInput("These heads have LM heads over a reduced vocabulary, which the official form cannot hold.")
        return {f"hydra_lm_head.{i}{shift}.{part}": head.weights[f"rows.{i}.{part}"] for i in range(sizes.heads) for part in ("weight", "bias")}
    if target is None:
        raise BadInput("These heads share the target's LM head, whose rows the format needs. Name the target: --target FOLDER.")
    found: dict[str, Tensor] = {}
    for i in range(sizes.heads):
        found |= {f"hydra_lm_head.{i}{shift}.weight": target.rows, f"hydra_lm_head.{i}{shift}.bias": torch.zeros(len(target.rows))}
    return found
