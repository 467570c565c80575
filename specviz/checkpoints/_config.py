"""Numbers out of a foreign config.json, checked before anything is sized by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specviz.drafters._layer import ROPE_KINDS
from specviz.errors import BadFile

if TYPE_CHECKING:
    from specviz.checkpoints._target import TargetFiles

MOST = 1 << 24  # no width, count or vocabulary is larger
_FROM_TARGET = ("max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
PLAIN_THETA = 10000.0  # what transformers takes when a config names no base


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Returns a whole number from 1 of a config; raises BadFile naming the key and the value."""
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise BadFile(f"config.json says {key}={value!r}, expected a whole number from 1 to {MOST}. Add or correct it.")
    return value


def number(config: Mapping[str, Any], key: str, default: float) -> float:
    """Returns a positive number of a config; raises BadFile naming the key and the value."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise BadFile(f"config.json says {key}={value!r}, expected a positive number. Correct it.")
    return float(value)


def offset(config: Mapping[str, Any], key: str) -> int:
    """Returns a whole number from 0 of a config, 0 where it is not there; raises BadFile naming the key and the value."""
    value = config.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST):
        raise BadFile(f"config.json says {key}={str(value)[:60]!r}, expected a whole number from 0. Correct it.")
    return value or 0


def flag(config: Mapping[str, Any], key: str) -> bool:
    """Returns a yes or no of a config, no where it is not there; raises BadFile naming the key and the value."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadFile(f"config.json says {key}={value!r}, expected true or false. Correct it.")
    return bool(value)


def inner(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Returns the object at a key of a config, an empty one where it is not there; raises BadFile for anything else."""
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BadFile(f"config.json says {key}={str(value)[:60]!r}, expected an object. Correct it.")
    return value or {}


def base_name(config: Mapping[str, Any]) -> str | None:
    """Returns the name of the model that a head says it was trained for."""
    name = config.get("base_model_name_or_path") or config.get("_name_or_path")
    return name if isinstance(name, str) and name else None


@dataclass(frozen=True)
class Rope:
    """The rotary base of a config. `forms` are the places that name one, with what they say; none means 10000 by default."""

    theta: float
    scaling: Mapping[str, Any] | None
    forms: tuple[tuple[str, float], ...]

    @property
    def kind(self) -> str:
        return str((self.scaling or {}).get("rope_type") or (self.scaling or {}).get("type") or "default")

    @property
    def supported(self) -> bool:
        return self.kind in ROPE_KINDS


def read_rope(config: Mapping[str, Any]) -> Rope:
    """Returns the base of either form: `rope_theta` with `rope_scaling` (up to transformers 4) or `rope_parameters` (from 5)."""
    newer, older = inner(config, "rope_parameters"), inner(config, "rope_scaling")
    forms: list[tuple[str, float]] = []
    if config.get("rope_theta") is not None:
        forms.append(("rope_theta", number(config, "rope_theta", PLAIN_THETA)))
    if newer.get("rope_theta") is not None:
        forms.append(("rope_parameters.rope_theta", number(newer, "rope_theta", PLAIN_THETA)))
    said = {key: value for key, value in (newer or older).items() if key != "rope_theta"}
    scaling = None if (said.get("rope_type") or said.get("type") or "default") == "default" else said
    return Rope(forms[-1][1] if forms else PLAIN_THETA, scaling, tuple(forms))


def layer_sizes(config: Mapping[str, Any], draft_vocab: int) -> dict[str, Any]:
    """Returns the arguments of LayerSizes that a Llama config gives. Raises BadFile for what is missing or not a number."""
    hidden, heads, rope = whole(config, "hidden_size"), whole(config, "num_attention_heads"), read_rope(config)
    if heads % whole(config, "num_key_value_heads", heads):
        raise BadFile(f"config.json says num_key_value_heads={config['num_key_value_heads']}, which does not divide num_attention_heads={heads}. Correct it.")
    width = whole(config, "head_dim", hidden // heads)
    if width % 2:
        raise BadFile(f"config.json gives an attention head {width} numbers (head_dim), expected an even count. Correct it.")
    return {
        "hidden": hidden,
        "intermediate": whole(config, "intermediate_size"),
        "heads": heads,
        "kv_heads": whole(config, "num_key_value_heads", heads),
        "head_dim": width,
        "rope_theta": rope.theta,
        "rope_scaling": rope.scaling,
        "norm_eps": number(config, "rms_norm_eps", 1e-6),
        "draft_vocab": draft_vocab,
    }


def layer_config(sizes: Any, vocab: int, target: TargetFiles | None) -> dict[str, Any]:
    """Returns the Llama config of a draft layer, in the form that every version of transformers reads; `target` gives its context and token ids."""
    taken = {key: target.config[key] for key in _FROM_TARGET if key in target.config} if target else {}
    return {
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.norm_eps,
        "rope_theta": sizes.rope_theta,
        "rope_scaling": None if sizes.rope_scaling is None else dict(sizes.rope_scaling),
        "attention_bias": False,
        "tie_word_embeddings": False,
        "vocab_size": vocab,
        "torch_dtype": "float16",
        **taken,
    }
