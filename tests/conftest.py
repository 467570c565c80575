"""Fixtures of the whole suite: tiny seeded models where weights are not the point, the real model where they are.

tiny_tokenizer    byte-level BPE of 320 tokens with a chat template
tiny_target       a seeded random Llama in memory, with that tokenizer
tiny_folder       the same model saved, so that `Target.load(tiny_folder)` works
make_target       makes others: make_target("qwen3", attention="eager", dtype=torch.float64, vocab_size=32, ...)
text_ids          text_ids(20, seed=1): random token ids of the tiny vocabulary
real_model        the default target; skips where its weights are absent
"""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specviz.attention import use_tree_attention
from specviz.sources import DEFAULT_TARGET, models_dir
from specviz.target import Target

VOCAB, EOS = 320, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)  # fmt: skip
CORPUS = [
    "the cat sat on the mat and the dog sat on the log.",
    "one two three four five six seven eight nine ten",
    "to be or not to be, that is the question of the day",
    "for i in range(10):\n    print(i, i * i)\n",
]
KINDS = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM), "mistral": (MistralConfig, MistralForCausalLM)}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection beyond this machine is an error that names its address."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost", "0.0.0.0"):
            raise OSError(f"a test tried to reach {address}; tests need no network")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a person's machine measured of itself is neither read nor written by tests."""
    before = os.environ.get("SPECVIZ_CACHE")
    os.environ["SPECVIZ_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("SPECVIZ_CACHE")
    if before is not None:
        os.environ["SPECVIZ_CACHE"] = before


def tokenizer(vocab_size: int = VOCAB) -> PreTrainedTokenizerFast:
    """Returns a byte-level BPE: three special tokens, the 256 bytes, and merges up to `vocab_size`."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    backend.train_from_iterator(CORPUS * 20, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = CHAT
    return made


def model(kind: str = "llama", *, attention: str = "sdpa", dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any) -> Any:
    """Returns a random causal LM whose logits differ widely (initializer_range 0.6), the same for the same seed.

    attention: "sdpa", "eager", or "tree" (this project's own function, as `Target.load` chooses it).
    """
    config_class, model_class = KINDS[kind]
    sizes = {
        "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "max_position_embeddings": 2048, "initializer_range": 0.6, "bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0,
    }  # fmt: skip
    if kind == "mistral":
        sizes["sliding_window"] = None
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = model_class(config_class(**(sizes | config), attn_implementation="sdpa" if attention == "tree" else attention))
    if attention == "tree":
        use_tree_attention(made)
    return made.to(dtype).eval()


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    return tokenizer()


@pytest.fixture(scope="session")
def make_target(tiny_tokenizer: PreTrainedTokenizerFast) -> Callable[..., Target]:
    """Makes a tiny target (once per set of arguments): make_target(kind, attention=..., dtype=..., seed=..., **config)."""

    @cache
    def make(kind: str = "llama", **arguments: Any) -> Target:
        fits = arguments.get("vocab_size", VOCAB) == VOCAB
        return Target(model(kind, **arguments), tiny_tokenizer if fits else None, f"tiny-{kind}")

    return make


@pytest.fixture(scope="session")
def tiny_target(make_target: Callable[..., Target]) -> Target:
    return make_target("llama")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, tiny_target: Target) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_target.model.save_pretrained(folder)
    tiny_target.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def text_ids() -> Callable[..., tuple[int, ...]]:
    """Random token ids without the special ones."""

    def make(count: int, seed: int = 0, vocab_size: int = VOCAB) -> tuple[int, ...]:
        rng = Random(seed)
        return tuple(rng.randrange(min(len(SPECIAL), vocab_size - 1), vocab_size) for _ in range(count))

    return make


@pytest.fixture(scope="session")
def real_model() -> Target:
    weights = models_dir() / DEFAULT_TARGET / "model.safetensors"
    if not weights.exists():
        pytest.skip(f"the default target's weights are not at {weights.parent.name}/{weights.name} (run `make weights`)")
    return Target.load()


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    """Forty short prompts of this project's own."""
    return [json.loads(line)["prompt"] for line in (Path(__file__).parent / "data" / "prompts.jsonl").read_text().splitlines()]


@pytest.fixture(scope="session")
def random_heads(tiny_target: Target, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a random checkpoint of a learned method that fits the tiny target; skips a method it cannot make."""
    from specviz.drafters._eagle3_module import Eagle3Layer, Eagle3Sizes
    from specviz.drafters._hydra_module import HydraHeads, HydraSizes
    from specviz.drafters.eagle_module import EagleLayer, EagleSizes
    from specviz.drafters.head_file import HeadConfig, save_head
    from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes

    vocabulary = torch.arange(3, VOCAB, 2)
    makers: dict[str, Callable[[], Any]] = {
        "medusa": lambda: MedusaHeads(MedusaSizes(tiny_target.hidden_size, 4, 1, len(vocabulary))),
        "hydra": lambda: HydraHeads(HydraSizes(tiny_target.hidden_size, 4, 1, len(vocabulary))),
        "eagle": lambda: EagleLayer(EagleSizes.of(tiny_target.text_config, len(vocabulary))),
        "eagle3": lambda: Eagle3Layer(
            Eagle3Sizes(
                **EagleSizes.of(tiny_target.text_config, len(vocabulary)).to_json(),
                feature=tiny_target.hidden_size,
                taps=(1, 2, tiny_target.layers),
                own_rows=False,
                residual_embedding=True,
            )
        ),
    }

    @cache
    def make(method: str) -> Path:
        if method not in makers:
            pytest.skip(f"no maker of a random {method} checkpoint in tests/conftest.py")
        with torch.random.fork_rng():
            torch.manual_seed(1)
            module = makers[method]()
            for parameter in module.parameters():
                torch.nn.init.normal_(parameter, std=0.2)
        folder = tmp_path_factory.mktemp(method)
        save_head(folder, HeadConfig(method, module.sizes.to_json(), tiny_target.fingerprint), module, vocabulary)
        return folder

    return make
