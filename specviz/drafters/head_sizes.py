"""The sizes in a head's config.json: checked here before anything is made of them, for loading and for the doctor alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NoReturn

import torch
from torch import nn

from specviz.checks import is_number, is_whole, told
from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
from specviz.drafters._hydra_module import HydraHeads, HydraSizes
from specviz.drafters._layer import ROPE_KINDS, LayerSizes
from specviz.drafters.eagle_module import EagleLayer, EagleSizes
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes

Sizes = MedusaSizes | HydraSizes | EagleSizes | Eagle3Sizes
METHODS: dict[str, tuple[Any, Any]] = {
    "medusa": (MedusaSizes, MedusaHeads),
    "hydra": (HydraSizes, HydraHeads),
    "eagle": (EagleSizes, EagleLayer),
    "eagle3": (Eagle3Sizes, Eagle3Layer),
}
MOST = 1 << 24  # no width, count or vocabulary is larger
MOST_PARTS = 256  # nor are there more heads, blocks or taps in one
PARTS = ("heads", "blocks", "tap_count", "own_rows")
MAY_BE_ZERO = ("own_rows", "state_offset", "vocab")


def make_module(method: str, sizes: Sizes) -> nn.Module:
    module: nn.Module = METHODS[method][1](sizes)
    return module


def expected_shapes(method: str, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Returns {name: shape} of our module's tensors without allocating them."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in make_module(method, sizes).state_dict().items()}


def read_sizes(method: str, raw: Any) -> Sizes:
    """Returns the sizes of a `method` head from its config.json; raises ValueError with the value that no such head can have."""
    kind = METHODS[method][0]
    _check_names(kind, raw, "sizes")
    if raw.get("prefix") is not None:
        _check_names(LayerSizes, raw["prefix"], "prefix")
    if not isinstance(raw.get("taps", ()), (list, tuple)):
        _refuse("taps", raw["taps"], "a list of layer numbers")
    sizes: Sizes = kind.from_json(raw)
    _check_values(sizes)
    return sizes


def _check_names(kind: type, raw: Any, what: str) -> None:
    if not isinstance(raw, Mapping):
        _refuse(what, raw, "an object")
    known = {field.name: field for field in fields(kind)}
    if odd := [name for name in raw if name not in known]:
        raise ValueError(f"{what} names {odd[0]!r}, which such a head does not have; it has {', '.join(known)}")
    if lost := [field.name for field in fields(kind) if field.default is MISSING and field.name not in raw]:
        raise ValueError(f"{what} does not say {lost[0]}")


def _check_values(sizes: Any) -> None:
    for field in fields(sizes):
        value, (fits, expected) = getattr(sizes, field.name), _KINDS[str(field.type)]
        if not fits(value):
            _refuse(field.name, value, expected)
        if field.type == "int":
            least = int(field.name not in MAY_BE_ZERO)
            most = MOST_PARTS if field.name in PARTS and not (field.name == "heads" and isinstance(sizes, LayerSizes)) else MOST
            if not least <= value <= most:
                _refuse(field.name, value, f"a whole number from {least} to {most}")
    if isinstance(sizes, LayerSizes):
        _check_layer(sizes)
    if isinstance(sizes, MedusaSizes) and sizes.own_rows not in (0, 1, sizes.heads):
        _refuse("own_rows", sizes.own_rows, f"0, 1 or one for each of the {sizes.heads} heads")
    if isinstance(sizes, HydraSizes) and sizes.prefix is not None:
        _check_values(sizes.prefix)
        if sizes.prefix.hidden != sizes.hidden:
            _refuse("hidden of the prefix layer", sizes.prefix.hidden, f"that of the head, {sizes.hidden}")


def _check_layer(sizes: LayerSizes) -> None:
    if not 0 < sizes.rope_theta < 1e15:
        _refuse("rope_theta", sizes.rope_theta, "a positive number, such as 10000")
    if not 0 < sizes.norm_eps < 1:
        _refuse("norm_eps", sizes.norm_eps, "a small positive number, such as 1e-05")
    if sizes.heads % sizes.kv_heads:
        _refuse("kv_heads", sizes.kv_heads, f"a divisor of heads={sizes.heads}")
    if sizes.head_dim % 2:
        _refuse("head_dim", sizes.head_dim, "an even number, as rotary positions turn pairs")
    if sizes.rope_scaling is not None:
        check_scaling(sizes.rope_scaling)
    if isinstance(sizes, Eagle3Sizes):
        if sizes.taps and (len(sizes.taps) != sizes.tap_count or len(set(sizes.taps)) != len(sizes.taps)):
            _refuse("taps", list(sizes.taps), f"{sizes.tap_count} different layer numbers, as tap_count says")
        if sizes.own_embedding and not sizes.vocab:
            _refuse("vocab", sizes.vocab, "the number of tokens of the head's own embeddings")


def check_scaling(scaling: Mapping[str, Any]) -> None:
    """Raises ValueError for a rotary scaling that a draft layer cannot run with, naming the part that is wrong."""
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ROPE_KINDS:
        _refuse("rope_scaling type", kind, f"one of {', '.join(ROPE_KINDS)}")
    wanted: Iterable[str] = {"default": (), "linear": ("factor",)}.get(
        kind, ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    for name in wanted:
        if not is_number(scaling.get(name)) or not 0 < scaling[name] < 1e15:
            _refuse(f"{name} of rope_scaling {kind!r}", scaling.get(name), "a positive number")
    if kind == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        _refuse("high_freq_factor of rope_scaling 'llama3'", scaling["high_freq_factor"], f"more than low_freq_factor={scaling['low_freq_factor']}")


def _refuse(name: str, value: Any, expected: str) -> NoReturn:
    raise ValueError(f"{name}={told(value)}, expected {expected}")


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (is_whole, "a whole number"),
    "float": (is_number, "a number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "tuple[int, ...]": (lambda value: all(is_whole(tap) and 0 <= tap <= MOST for tap in value), "layer numbers from 0"),
    "Mapping[str, Any] | None": (lambda value: value is None or isinstance(value, Mapping), "an object or null"),
    "LayerSizes | None": (lambda value: value is None or isinstance(value, LayerSizes), "an object or null"),
}
