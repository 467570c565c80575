"""Tiny checkpoints in every format, written by hand as their own programs write them, not by our writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

V, H, INNER, HEADS, KV, HD, DRAFT = 320, 64, 96, 4, 2, 16, 40  # the tiny target's sizes, and a reduced vocabulary


class Maker:
    """Random tensors from one seed; every call gives new ones."""

    def __init__(self, seed: int = 0) -> None:
        self.chance = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return (torch.randn(*shape, generator=self.chance) * 0.2).half()

    def norm(self, width: int = H) -> Tensor:
        return 1 + self(width)


def save(folder: Path, config: dict[str, Any] | None, tensors: dict[str, Tensor], name: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file({key: tensor.contiguous().clone() for key, tensor in tensors.items()}, folder / name)
    else:
        torch.save(tensors, folder / name)
    return folder


def llama_config(**more: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "intermediate_size": INNER, "num_hidden_layers": 1,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HD, "rms_norm_eps": 1e-5, "vocab_size": V, "rope_theta": 10000.0,
    } | more  # fmt: skip


def llama_layer(make: Maker, width: int, prefix: str, norms: tuple[str, ...]) -> dict[str, Tensor]:
    found = {
        "self_attn.q_proj.weight": make(HEADS * HD, width), "self_attn.k_proj.weight": make(KV * HD, width), "self_attn.v_proj.weight": make(KV * HD, width),
        "self_attn.o_proj.weight": make(H, HEADS * HD), "mlp.gate_proj.weight": make(INNER, H), "mlp.up_proj.weight": make(INNER, H), "mlp.down_proj.weight": make(H, INNER),
    }  # fmt: skip
    return {prefix + name: tensor for name, tensor in found.items()} | {f"{prefix}{name}.weight": make.norm() for name in norms}


def medusa_tensors(heads: int = 3, layers: int = 1, *, matrices: bool = True, prefix: str = "") -> dict[str, Tensor]:
    make, found = Maker(1), {}
    for head in range(heads):
        weight, bias = make(H, H), make(H)
        for layer in range(layers):  # the official code repeats one block
            found |= {f"{prefix}{head}.{layer}.linear.weight": weight, f"{prefix}{head}.{layer}.linear.bias": bias}
        if matrices:
            found[f"{prefix}{head}.{layers}.weight"] = make(V, H)
    return found


def medusa_v1(folder: Path, heads: int = 3, layers: int = 1, **config: Any) -> Path:
    said = {"medusa_num_heads": heads, "medusa_num_layers": layers, "base_model_name_or_path": "some/base"} | config
    return save(folder, said, medusa_tensors(heads, layers), "medusa_lm_head.pt")


def medusa_shared(folder: Path, heads: int = 3, **config: Any) -> Path:
    said = {"version": "2", "medusa_num_heads": heads, "medusa_num_layers": 1} | config
    said = {key: value for key, value in said.items() if value is not None}
    return save(folder, said, medusa_tensors(heads, matrices=False), "medusa_lm_head.safetensors")


def medusa_full(folder: Path, heads: int = 3, **config: Any) -> Path:
    """An ordinary model in two shards, heads inside."""
    make = Maker(2)
    model = {"model.embed_tokens.weight": make(V, H), "lm_head.weight": make(V, H)} | llama_layer(make, H, "model.layers.0.", ("input_layernorm",))
    inside = medusa_tensors(heads, prefix="medusa_head.")
    said = llama_config(medusa_num_heads=heads, medusa_num_layers=1) | config
    save(folder, said, model, "model-00001-of-00002.safetensors")
    save(folder, None, inside, "model-00002-of-00002.safetensors")
    places = dict.fromkeys(model, "model-00001-of-00002.safetensors") | dict.fromkeys(inside, "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def medusa_vllm(folder: Path, heads: int = 3, *, drop: tuple[str, ...] = (), more: dict[str, Tensor] | None = None, **config: Any) -> Path:
    make, tensors = Maker(3), {}
    for head in range(heads):
        tensors |= {f"blocks.{head}.layers.0.weight": make(H, H), f"blocks.{head}.layers.0.bias": make(H), f"lm_heads.{head}.weight": make(V, H)}
    tensors = {name: tensor for name, tensor in (tensors | (more or {})).items() if name not in drop}
    said = {
        "model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": H, "vocab_size": V, "num_heads": heads, "num_hidden_layers": 1,
        "max_paths": 64, "topk": 10, "truncated_vocab_size": V, "medusa_fc_bias": True, "original_lm_head": False,
    } | config  # fmt: skip
    return save(folder, {key: value for key, value in said.items() if value is not None}, tensors)


def hydra(folder: Path, heads: int = 2, layers: int = 2, *, prefix: bool = False, grounded: bool = True, **config: Any) -> Path:
    make, tensors = Maker(4), {}
    for head in range(heads):
        later = (make(H, H), make(H))
        for layer in range(layers):
            place = 2 * layer + 1 if prefix else layer
            wide = (head + 2) * H if grounded and layer == 0 else H
            weight, bias = (make(H, wide), make(H)) if layer == 0 else later
            tensors |= {f"hydra_mlp.{head}.{place}.linear.weight": weight, f"hydra_mlp.{head}.{place}.linear.bias": bias}
            if grounded and layer == 0:
                tensors |= {f"hydra_mlp.{head}.{place}.res_connection.weight": make(H, wide), f"hydra_mlp.{head}.{place}.res_connection.bias": make(H)}
        name = f"hydra_lm_head.{head}{'.1' if prefix else ''}"
        tensors |= {f"{name}.weight": make(V, H), f"{name}.bias": make(V)}
    if prefix:
        tensors |= llama_layer(make, H, "prefix_embeding_layer.layers.0.", ("input_layernorm", "post_attention_layernorm"))
        tensors |= {"prefix_embeding_layer.norm.weight": make.norm(), "prefix_embeding_layer.embed_tokens.weight": make(V, H)}
    tensors["input_embed_fn.weight"] = make(V, H)
    said = {
        "hydra_num_heads": heads, "hydra_num_layers": layers, "hydra_head_arch": "prefix-mlp" if prefix else "mlp", "grounded_heads": grounded,
        "hidden_state_offset": 0, "base_model_name_or_path": "some/base",
    } | config  # fmt: skip
    return save(folder, said, tensors, "hydra_lm_head.pt")


def eagle_tensors(*, bias: bool = True) -> dict[str, Tensor]:
    make = Maker(5)
    found = {"embed_tokens.weight": make(V, H), "fc.weight": make(H, 2 * H)} | ({"fc.bias": make(H)} if bias else {})
    return found | llama_layer(make, H, "layers.0.", ("post_attention_layernorm",))


def eagle(folder: Path, *, bias: bool = True, name: str = "pytorch_model.bin", more: dict[str, Tensor] | None = None, **config: Any) -> Path:
    said = llama_config(**({} if bias else {"bias": False})) | config
    return save(folder, {k: v for k, v in said.items() if v is not None}, eagle_tensors(bias=bias) | (more or {}), name)


def draft_ids() -> Tensor:
    """Sorted target ids of the reduced vocabulary, some of them neighbours."""
    return torch.cat((torch.arange(3, 13), torch.arange(20, 20 + 10 * (DRAFT - 10), 10))).clamp(max=V - 1)


def eagle3_tensors(layer: str = "midlayer.", *, reduced: bool = True, taps: int = 3) -> dict[str, Tensor]:
    make = Maker(6)
    found = {"fc.weight": make(H, taps * H), "norm.weight": make.norm(), "lm_head.weight": make(DRAFT if reduced else V, H)}
    found |= llama_layer(make, 2 * H, layer, ("hidden_norm", "input_layernorm", "post_attention_layernorm"))
    if reduced:
        ids = draft_ids()
        marks = torch.zeros(V, dtype=torch.bool)
        marks[ids] = True
        found |= {"d2t": ids - torch.arange(DRAFT), "t2d": marks}
    return found


def eagle3(
    folder: Path, *, reduced: bool = True, name: str = "pytorch_model.bin", more: dict[str, Tensor] | None = None, drop: tuple[str, ...] = (), **config: Any
) -> Path:
    tensors = {key: tensor for key, tensor in (eagle3_tensors(reduced=reduced) | (more or {})).items() if key not in drop}
    said = llama_config(draft_vocab_size=DRAFT if reduced else V) | config
    return save(folder, {k: v for k, v in said.items() if v is not None}, tensors, name)


def speculators(folder: Path, *, more: dict[str, Tensor] | None = None, drop: tuple[str, ...] = (), layer: dict[str, Any] | None = None, **config: Any) -> Path:
    tensors = eagle3_tensors("layers.0.") | {"embed_tokens.weight": Maker(7)(V, H)} | (more or {})
    said = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.5.0", "draft_vocab_size": DRAFT,
        "norm_before_residual": True, "transformer_layer_config": llama_config() | (layer or {}),
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy", "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "some/base", "architectures": ["LlamaForCausalLM"]},
        },
    } | config  # fmt: skip
    return save(folder, {k: v for k, v in said.items() if v is not None}, {k: t for k, t in tensors.items() if k not in drop})


ALL = {
    "medusa_v1": medusa_v1, "medusa_shared": medusa_shared, "medusa_full": medusa_full, "medusa_vllm": medusa_vllm,
    "hydra": hydra, "eagle": eagle, "eagle3": eagle3, "speculators": speculators,
}  # fmt: skip
