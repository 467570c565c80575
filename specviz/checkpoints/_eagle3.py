"""What the forms of EAGLE-3 have in common: one layer under two names, flags that are easy to lose, taps that are counted in two ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from specviz.checkpoints._checks import check_activation, check_embedding, check_finite, check_rope, check_shapes, check_vocabulary, same_numbers
from specviz.checkpoints._config import MOST, flag, inner, layer_config, layer_sizes, whole
from specviz.checkpoints._llama import foreign, has_biases, layer_names, layer_shapes, read_layer
from specviz.checkpoints._sidecar import restore
from specviz.checkpoints._vocabulary import mapping_problems, marks, offsets, read_mapping
from specviz.checkpoints.base import ERROR, Head, Problem
from specviz.drafters._eagle3_module import Eagle3Sizes
from specviz.errors import BadFile, BadInput

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

NORMS = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
EMBED, FC, ROWS = "embed_tokens.weight", "fc.weight", "lm_head.weight"
TAP_KEY = "eagle_aux_hidden_state_layer_ids"
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
PLAIN = (FC, "norm.weight", ROWS)


@dataclass(frozen=True)
class Layout:
    """What a file holds: `layer` is the prefix of the decoder layer's names, `flags` are the config's."""

    layer: str
    sizes: Mapping[str, Any]  # LayerSizes arguments
    vocab: int
    feature: int
    tap_count: int
    biased: bool
    fc_bias: bool
    flags: Mapping[str, Any]  # of FLAGS, each true or false

    def expected(self) -> dict[str, tuple[int, ...]]:
        d, wide = self.sizes["hidden"], self.feature * self.tap_count
        shapes = {FC: (d, wide), "norm.weight": (d,), ROWS: (self.sizes["draft_vocab"], d)}
        shapes |= {self.layer + name: shape for name, shape in layer_shapes(self.sizes, 2 * d, NORMS, self.biased).items()}
        if self.fc_bias:
            shapes["fc.bias"] = (d,)
        if self.flags["norm_before_fc"]:
            shapes["input_norm.weight"] = (wide,)
        if self.flags["fc_norm"]:
            shapes |= {f"fc_norm.{i}.weight": (self.feature,) for i in range(self.tap_count)}
        return shapes


def find_layout(files: Files, config: Mapping[str, Any], outer: Mapping[str, Any]) -> Layout:
    """Returns the layout; `config` is the layer's own, `outer` the one that holds the flags. Raises BadFile for a file that has none."""
    layer = "midlayer." if any(name.startswith("midlayer.") for name in files.entries) else "layers.0."
    vocab = whole(config, "vocab_size", (files.shape("t2d") or (None,))[0])
    rows = (files.shape(ROWS) or files.shape("d2t") or (None,))[0]
    sizes = layer_sizes(config, rows or whole(outer, "draft_vocab_size", vocab))
    feature = whole(outer, "target_hidden_size", sizes["hidden"])
    width = (files.shape(FC) or (0, 0))[-1]
    flags = {name: flag(outer if name in outer else inner(outer, "eagle_config"), name) for name in FLAGS}
    return Layout(layer, sizes, vocab, feature, width // feature, has_biases(files, layer), "fc.bias" in files, flags)


def found_taps(config: Mapping[str, Any], target: TargetFiles | None) -> tuple[int, ...]:
    """Returns the layers whose entering state is read.

    At the top of a config the ids count that way; below "eagle_config" (SpecForge, SGLang) they name layers whose OUTPUT is
    read, one less. Without any, the official layers of the target apply; () when the target is not known.
    """
    nested = inner(config, "eagle_config")
    said = config.get(TAP_KEY) or nested.get(TAP_KEY)
    if not said:
        return target.default_taps if target else ()
    if not _are_layers(said):
        raise BadFile(f"config.json says {TAP_KEY}={str(said)[:60]!r}, expected a list of layer numbers. Correct it.")
    return tuple(said) if config.get(TAP_KEY) else tuple(tap + 1 for tap in said)


def _are_layers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(tap, int) and not isinstance(tap, bool) and abs(tap) <= MOST for tap in value)


def tap_problems(files: Files, config: Mapping[str, Any], layout: Layout, target: TargetFiles | None) -> Iterator[Problem]:
    width, nested = (files.shape(FC) or (0, 0))[-1], config.get("eagle_config")
    said = config.get(TAP_KEY) or (nested.get(TAP_KEY) if isinstance(nested, dict) else None)
    if not width or width % layout.feature:
        yield Problem(
            "wrong_taps",
            f"fc reads {width} numbers, not a multiple of the state width {layout.feature}: set target_hidden_size in config.json to the target's hidden size.",
            ERROR,
        )
        return
    if said is not None and not _are_layers(said):
        yield Problem("wrong_taps", f"{TAP_KEY} is {str(said)[:60]!r}: expected a list of layer numbers.", ERROR)
        return
    if said is None and layout.tap_count != 3:
        yield Problem("wrong_taps", f"fc reads {layout.tap_count} states, and the default is 3: name the layers in {TAP_KEY}.", ERROR)
        return
    taps = found_taps(config, target)
    if taps and len(taps) != layout.tap_count:
        yield Problem(
            "wrong_taps",
            f"config.json names {len(taps)} layers to read, {list(taps)}, but fc takes {layout.tap_count} states: list the layers that the head was trained with.",
            ERROR,
        )
    if said and len(set(taps)) != len(taps):
        yield Problem("wrong_taps", f"config.json names a layer twice in {list(taps)}: list the layers that the head was trained with.", ERROR)
    if any(tap < 0 for tap in taps):
        yield Problem("wrong_taps", f"config.json names a layer below 0 in {list(taps)}: list the layers that the head was trained with.", ERROR)
    elif target and not all(tap <= target.layers for tap in taps):
        yield Problem(
            "wrong_taps",
            f"The head reads the states entering layers {list(taps)}, and the target {target.name} has layers 0 to {target.layers - 1}: use the head with its own target.",
            ERROR,
        )
    if not config.get(TAP_KEY) and said:
        yield Problem(
            "taps_nested",
            f"The layers are named below eagle_config, where {said} count layer outputs: read here as the states entering {list(taps)}, but some loaders take them as they are; write {TAP_KEY}: {list(taps)} at the top of config.json.",
        )
    elif target and tuple(said or ()) == tuple(tap - 1 for tap in target.default_taps):
        yield Problem(
            "taps_off_by_one",
            f"{said} are the official layers counted as outputs; here and in vLLM the numbers mean states entering a layer: write {list(target.default_taps)} if the head was trained with the official ones.",
        )


def eagle3_problems(files: Files, config: Mapping[str, Any], outer: Mapping[str, Any], target: TargetFiles | None) -> Iterator[Problem]:
    """Yields what both forms check."""
    layout = find_layout(files, config, outer)
    d, vocab, columns = layout.sizes["hidden"], layout.vocab, layout.sizes["draft_vocab"]
    yield from tap_problems(files, outer, layout, target)
    yield from check_shapes(files, layout.expected(), ["d2t", "t2d", EMBED])
    yield from _architecture_problems(files, config)
    if layout.fc_bias:
        yield Problem(
            "fc_bias_unused",
            "The file holds fc.bias, which EAGLE-3 does not have and other loaders drop or refuse: it is used here; train with a plain fc to serve it elsewhere.",
        )
    said = outer.get("draft_vocab_size")
    if said is not None and said != columns:
        yield Problem(
            "vocabulary_mismatch",
            f"config.json says draft_vocab_size = {said}, the LM head has {columns} rows: put the right config.json beside the weights.",
            ERROR,
        )
    yield from mapping_problems(files, vocab, columns)
    yield from check_rope(config, target)
    yield from check_vocabulary(vocab, target, "config.json says")
    if target and layout.feature != target.hidden:
        yield Problem(
            "hidden_mismatch",
            f"The head reads states of width {layout.feature}, the target {target.name} gives {target.hidden}: use the head with its own target.",
            ERROR,
        )
    if layout.feature != d and EMBED not in files:
        yield Problem(
            "embedding_missing",
            f"The head is {d} wide and the target {layout.feature}, so it needs {EMBED}, which is not in the file: fetch the full checkpoint.",
            ERROR,
        )
    if layout.feature == d:
        yield from check_embedding(files, EMBED, target)
    yield from check_finite(files, layout.expected())


def _architecture_problems(files: Files, config: Mapping[str, Any]) -> Iterator[Problem]:
    if whole(config, "num_hidden_layers", 1) != 1:
        yield Problem("layers", f"config.json says num_hidden_layers = {config['num_hidden_layers']}: only heads of one layer are supported.", ERROR)
    if any(".q_norm." in name or ".k_norm." in name for name in files.entries):
        yield Problem("architecture", "The layer norms its queries and keys, as Qwen3 does: only Llama layers are supported.", ERROR)
    yield from check_activation(config)


def read_eagle3(files: Files, config: Mapping[str, Any], outer: Mapping[str, Any], target: TargetFiles | None, base: str | None) -> Head:
    """Returns the head of either form."""
    layout = find_layout(files, config, outer)
    mapping = read_mapping(files, layout.vocab, layout.sizes["draft_vocab"])
    own_embedding = EMBED in files and (
        layout.feature != layout.sizes["hidden"] or (target is not None and not same_numbers(files.tensor(EMBED), target.embedding))
    )
    taps = found_taps(outer, target)
    sizes = Eagle3Sizes(
        **layout.sizes, qkv_bias=layout.biased, feature=layout.feature, tap_count=layout.tap_count, taps=taps, fc_bias=layout.fc_bias, **layout.flags,
        own_embedding=own_embedding, vocab=layout.vocab,
    )  # fmt: skip
    weights = read_layer(files, layout.layer, NORMS, layout.biased)
    weights |= {name: files.tensor(name) for name in _outside(layout, own_embedding)}
    notes = ("d2t was read as target ids, not offsets.",) if mapping.kind == "absolute" else ()
    head = Head("eagle3", sizes, weights, mapping.ids, taps, base, notes=notes)
    restored = restore(head, files.folder)
    kept = restored.sizes_as(Eagle3Sizes)
    return restored if kept.taps else replace(restored, sizes=replace(kept, taps=restored.taps))


def _outside(layout: Layout, own_embedding: bool) -> list[str]:
    """Returns the tensors beside the decoder layer; they have the same names here and there."""
    return [name for name in layout.expected() if not name.startswith(layout.layer)] + [EMBED] * own_embedding


def foreign_tensors(head: Head, layer: str, target: TargetFiles | None) -> dict[str, Tensor]:
    """Returns the head's tensors for either form, with d2t and t2d for a reduced vocabulary."""
    sizes = head.sizes_as(Eagle3Sizes)
    inside = layer_names(NORMS, sizes.qkv_bias)
    tensors = {layer + foreign(name) if name in inside else name: tensor for name, tensor in head.weights.items()}
    if not sizes.own_rows:
        if target is None:
            raise BadInput("This head uses rows of the target's LM head, which the format needs. Name the target: --target FOLDER.")
        tensors[ROWS] = target.rows[head.vocabulary]
    vocab = full_vocab(head, target)
    if int(head.vocabulary.max()) >= vocab:
        raise BadFile(f"The draft vocabulary names token {int(head.vocabulary.max())}, but the target has {vocab}. The head belongs to another model.")
    if len(head.vocabulary) < vocab:
        tensors |= {"d2t": offsets(head.vocabulary), "t2d": marks(head.vocabulary, vocab)}
    return tensors


def full_vocab(head: Head, target: TargetFiles | None) -> int:
    """Returns the target's vocabulary size: from the target, else from the head itself."""
    sizes = head.sizes_as(Eagle3Sizes)
    if target is not None:
        return target.vocab
    if sizes.vocab:
        return sizes.vocab
    raise BadInput("This head does not say how many tokens its target has. Name the target: --target FOLDER.")


def layer_and_flags(head: Head, target: TargetFiles | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (the layer's Llama config, the keys that only EAGLE-3 has); flags are always written, as loaders disagree on their defaults."""
    sizes = head.sizes_as(Eagle3Sizes)
    if sizes.residual_embedding:
        raise BadInput(
            "This head adds the embedding to the residual stream, which no published form of EAGLE-3 has, so no other program could read it. "
            "A head that can be exported is trained with: train eagle3 --knob residual=false --knob final=false."
        )
    flags: dict[str, Any] = {name: getattr(sizes, name) for name in FLAGS} | {"draft_vocab_size": sizes.draft_vocab}
    taps = head.taps or sizes.taps or (target.default_taps if target else ())
    if taps:
        flags[TAP_KEY] = list(taps)
    if sizes.feature != sizes.hidden:
        flags["target_hidden_size"] = sizes.feature
    return {**layer_config(sizes, full_vocab(head, target), target), "attention_bias": sizes.qkv_bias}, flags
