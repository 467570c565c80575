from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.checkpoints._eagle3 import eagle3_problems, find_layout, foreign_tensors, found_taps, layer_and_flags, read_eagle3
from specviz.checkpoints._write import named, write_checkpoint
from specviz.checkpoints.base import ERROR, Format, Head, Problem
from specviz.checkpoints.serving import draft_length
from specviz.errors import BadFile, BadInput

if TYPE_CHECKING:
    from specviz.checkpoints._files import Files
    from specviz.checkpoints._target import TargetFiles

TYPE, LAYER = "speculators_model_type", "transformer_layer_config"
VERSION = "0.5.0"  # of the format that is written


class Speculators(Format):
    """EAGLE-3 heads of the speculators library, which vLLM serves by their folder alone."""

    method = "eagle3"

    def matches(self, files: Files) -> bool:
        return TYPE in files.config

    def sizes(self, files: Files) -> dict[str, Any]:
        layout = find_layout(files, _layer(files), files.config)
        kept = {key: layout.sizes[key] for key in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "rope_theta")}
        taps = list(found_taps(files.config, None)) or "default (2, L//2, L-3)"
        found = {"vocabulary": layout.vocab, "draft vocabulary": layout.sizes["draft_vocab"], "states read": layout.tap_count, "taps": taps}
        return kept | found | {"verifier": _verifier(files.config)}

    def problems(self, files: Files, target: TargetFiles | None) -> Iterator[Problem]:
        config = files.config
        if config[TYPE] != "eagle3":
            yield Problem("architecture", f"A speculators checkpoint of type {config[TYPE]!r}: only eagle3 is supported.", ERROR)
            return
        if not isinstance(config.get(LAYER), dict):
            yield Problem(
                "no_layer_config", f"config.json has no {LAYER}, so the layer's sizes are not known: fetch the config.json of the checkpoint again.", ERROR
            )
            return
        yield from _serving_problems(config)
        if "norm_before_residual" not in config:
            yield Problem(
                "norm_before_residual_unset",
                "config.json does not say norm_before_residual: vLLM takes true, the speculators library and this program take false; write the value that the head was trained with (official EAGLE-3: false).",
            )
        if any(name.startswith("midlayer.") for name in files.entries):
            yield Problem(
                "layer_names",
                "The layer's tensors are called midlayer.*, which vLLM understands and the speculators library does not: rename them to layers.0.* (convert --to speculators does).",
            )
        yield from eagle3_problems(files, config[LAYER], config, target)

    def read(self, files: Files, target: TargetFiles | None) -> Head:
        return read_eagle3(files, _layer(files), files.config, target, _verifier(files.config))

    def write(self, head: Head, out: Path, target: TargetFiles | None) -> None:
        """Writes config.json and model.safetensors; raises BadInput when no target's name is known, which vLLM needs to serve it."""
        head = named(head, target)
        if head.base is None:
            raise BadInput("The speculators form must name the model that verifies. Name the target: --target FOLDER.")
        layer, flags = layer_and_flags(head, target)
        verifier = {
            "name_or_path": str(target.files.folder) if target else head.base,
            "architectures": target.architectures if target else ["LlamaForCausalLM"],
        }
        proposal = {"proposal_type": "greedy", "speculative_tokens": draft_length(head).tokens, "verifier_accept_k": 1, "accept_tolerance": 0.0}
        config = {
            "architectures": ["Eagle3Speculator"], TYPE: "eagle3", "speculators_version": VERSION, **flags, "embed_requires_grad": False, LAYER: layer,
            "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy", "proposal_methods": [proposal], "verifier": verifier},
            "torch_dtype": "float16",
        }  # fmt: skip
        tensors = foreign_tensors(head, "layers.0.", target)
        write_checkpoint(out, head, config, tensors)


def _layer(files: Files) -> Mapping[str, Any]:
    layer = files.config.get(LAYER)
    if not isinstance(layer, dict):
        raise BadFile(f"config.json in {files.folder} has no {LAYER}. Fetch it again.")
    return layer


def _verifier(config: Mapping[str, Any]) -> str | None:
    inner = config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, dict) else None
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return name if isinstance(name, str) else None


def _serving_problems(config: Mapping[str, Any]) -> Iterator[Problem]:
    inner = config.get("speculators_config")
    methods = inner.get("proposal_methods") if isinstance(inner, dict) else None
    first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
    if "speculative_tokens" not in first:
        yield Problem(
            "draft_length_unset",
            "speculators_config.proposal_methods[0].speculative_tokens is not set, without which vLLM refuses the checkpoint: add the number of drafted tokens.",
        )
    if _verifier(config) is None:
        yield Problem(
            "verifier_unset", "speculators_config.verifier.name_or_path is not set, without which vLLM refuses the checkpoint: add the target's name."
        )
