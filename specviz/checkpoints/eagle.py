from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specviz.checkpoints._checks import check_activation, check_embedding, check_finite, check_hidden, check_rope, check_shapes, check_vocabulary
from specviz.checkpoints._config import base_name, layer_config, layer_sizes, whole
from specviz.checkpoints._llama import has_biases, layer_names, layer_shapes, read_layer
from specviz.checkpoints._sidecar import restore
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import ERROR, Format, Head, Problem
from specviz.drafters.eagle_module import EagleSizes

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

LAYER, NORMS, EMBED = "layers.0.", ("post_attention_layernorm",), "embed_tokens.weight"
NOT_THERE = (LAYER + "input_layernorm.weight", "norm.weight", "hidden_states_layernorm.weight", "embedding_layernorm.weight")


class Eagle(Format):
    """Official EAGLE heads (versions 1 and 2 share one form); the config is that of a one-layer Llama."""

    method = "eagle"

    def matches(self, files: Files) -> bool:
        hidden = (files.shape("fc.weight") or (0,))[0]
        query = files.shape(LAYER + "self_attn.q_proj.weight")
        return bool(query) and files.shape("fc.weight") == (hidden, 2 * hidden) and query[-1] == hidden and LAYER + "hidden_norm.weight" not in files

    def sizes(self, files: Files) -> dict[str, Any]:
        found = layer_sizes(self.config(files), 0)
        kept = {key: found[key] for key in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "rope_theta")}
        return kept | {"vocabulary": self.vocab(files), "fc bias": "fc.bias" in files, "embeddings in the file": EMBED in files}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        config = self.config(files)
        sizes, biased = layer_sizes(config, 0), has_biases(files, LAYER)
        d, vocab = sizes["hidden"], self.vocab(files)
        expected = {"fc.weight": (d, 2 * d)} | {LAYER + name: shape for name, shape in layer_shapes(sizes, d, NORMS, biased).items()}
        yield from check_shapes(files, expected, ["fc.bias", EMBED, "lm_head.weight", *NOT_THERE])
        if whole(config, "num_hidden_layers", 1) != 1:
            yield Problem("layers", f"config.json says num_hidden_layers = {config['num_hidden_layers']}: only heads of one layer are supported.", ERROR)
        yield from check_activation(config)
        yield from _bias_problems(files, biased)
        yield from _norm_problems(files)
        yield from check_rope(config, target)
        yield from check_hidden(d, target)
        yield from check_vocabulary(vocab, target, "config.json says")
        if EMBED in files and files.shape(EMBED) != (vocab, d):
            yield Problem(
                "vocabulary_mismatch",
                f"{EMBED} is {list(files.shape(EMBED))}, config.json says {vocab} tokens of width {d}: they are of different models.",
                ERROR,
            )
        yield from check_embedding(files, EMBED, target)
        yield from check_finite(files, [*expected, "fc.bias"])

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        config, biased = self.config(files), has_biases(files, LAYER)
        vocab = self.vocab(files)
        sizes = EagleSizes(**layer_sizes(config, vocab), qkv_bias=biased)
        weights = {"fc.weight": files.tensor("fc.weight")} | read_layer(files, LAYER, NORMS, biased)
        weights["fc.bias"] = files.tensor("fc.bias") if "fc.bias" in files else torch.zeros(sizes.hidden)
        taps = () if target is None else (target.layers,)
        return restore(Head(self.method, sizes, weights, torch.arange(vocab), taps, base_name(files.config)), files.folder)

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes config.json and model.safetensors; the target's embeddings are added when it is named (official loaders want them)."""
        sizes, head = head.sizes_as(EagleSizes), named(head, target)
        vocab = target.vocab if target else max(len(head.vocabulary), int(head.vocabulary.max()) + 1)
        names = {mine: LAYER + theirs for mine, theirs in layer_names(NORMS, sizes.qkv_bias).items()} | {"fc.weight": "fc.weight"}
        tensors = {theirs: head.weights[mine] for mine, theirs in names.items()}
        biased = bool(head.weights["fc.bias"].any())
        if biased:
            tensors["fc.bias"] = head.weights["fc.bias"]
        if target is not None:
            tensors[EMBED] = target.embedding
        config = {"architectures": ["LlamaForCausalLM"], **layer_config(sizes, vocab, target), "bias": biased, "base_model_name_or_path": head.base}
        write_checkpoint(out, head, config | ({"qkv_bias": True} if sizes.qkv_bias else {}), tensors)

    def config(self, files: Files) -> Mapping[str, Any]:
        """Returns the Llama config: the whole file, or its part "model" in the form that vLLM's first engine wanted."""
        inner = files.config.get("model")
        return inner if files.config.get("model_type") == "eagle" and isinstance(inner, dict) else files.config

    def vocab(self, files: Files) -> int:
        config = self.config(files)
        return whole(config, "vocab_size", (files.shape(EMBED) or (None,))[0])


def _bias_problems(files: Files, qkv: bool) -> Iterator[Problem]:
    config, there = files.config, "fc.bias" in files
    key = "eagle_fc_bias" if config.get("model_type") == "eagle" else "bias"
    wanted = bool(config.get(key, key == "bias"))  # the official default is True, vLLM's first engine took False
    if wanted and not there:
        told = f"says {key}: {str(config[key]).lower()}" if key in config else f"has no {key}, which means true"
        yield Problem(
            "fc_bias_missing",
            f"config.json {told}, but the file holds no fc.bias, so the official loader runs an uninitialised one: set {key}: false (zeros are used here).",
        )
    if there and not wanted:
        yield Problem(
            "fc_bias_unused",
            f"The file holds fc.bias, but config.json {'says ' + key + ': false' if key in config else 'lacks ' + key}, so loaders that follow it leave the bias out: set {key}: true (it is used here).",
        )
    if there and bool(files.tensor("fc.bias").any()):
        yield Problem(
            "fc_bias_vllm",
            "vLLM's EAGLE layer has no fc bias (its releases drop it or refuse to load): expect lower acceptance there, or train the head with the bias frozen at zero.",
        )
    if qkv and not (config.get("qkv_bias") or config.get("attention_bias")):
        yield Problem(
            "qkv_bias_unset",
            "The attention has biases but config.json has no qkv_bias: true, so loaders that follow it leave them out: add it (they are used here).",
        )


def _norm_problems(files: Files) -> Iterator[Problem]:
    there = [name for name in NOT_THERE if name in files]
    if there:
        yield Problem(
            "extra_norm",
            f"{', '.join(there)} in the file: EAGLE's layer has no such norm, and the official loader leaves it out, as is done here; if the head was trained with it, it is of another kind.",
        )
    if "lm_head.weight" in files:
        yield Problem("extra_lm_head", "lm_head.weight in the file is ignored, as EAGLE uses the target's own LM head: remove it to save space.")
