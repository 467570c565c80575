"""Target: a stock transformers causal language model, untouched, that verifies whole trees in one forward."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from specviz import hub
from specviz.attention import fold_of, use_tree_attention
from specviz.cache import TreeCache
from specviz.errors import BadInput, Missing, UnsupportedModel
from specviz.graphs.verify import Graphs
from specviz.norms import fuse_norms
from specviz.packed import pack_linears
from specviz.sources import DEFAULT_TARGET, Fingerprint, hash_folder, hash_tensors, locate, short_name
from specviz.staging import send
from specviz.supported import refuse_odd_cache, refuse_unsupported
from specviz.taps import tapped
from specviz.tree import TokenTree, ancestor_mask

PREFILL_ROWS = 8192  # tokens of a forward over several prompts, padding included
PREFILL_CHUNK = 512  # prompt tokens per forward; bounds activation memory, long prompts go in several
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
FP32_LIMIT = 1_000_000_000  # parameters up to which fp32 is the default, so that exact means equal


@dataclass(frozen=True)
class Output:
    """What one forward gives: logits and the tapped hidden states of the rows it ran.

    logits [rows, nodes, vocab] (prefill: [rows, 1, vocab], after the last prompt token);
    hidden {tap: [rows, nodes, H]}; tap i < layers is the state ENTERING layer i, tap == layers the final norm's output.
    With graphs these are a graph's own tensors: they hold until the next forward on the same cache.
    """

    logits: torch.Tensor
    hidden: dict[int, torch.Tensor]


class Target:
    """Holds one loaded model with its tokenizer and fingerprint; it keeps no state of any run."""

    def __init__(self, model: Any, tokenizer: Any, name: str, fingerprint: Fingerprint | None = None, notes: tuple[str, ...] = ()) -> None:
        refuse_unsupported(model.config)
        refuse_odd_cache(model.config)
        self.model, self.tokenizer, self.name, self.notes = model.eval(), tokenizer, name, notes
        self.text_config = model.config.get_text_config(decoder=True)
        self.layers = int(self.text_config.num_hidden_layers)
        self.hidden_size, self.vocab_size = int(self.text_config.hidden_size), int(self.text_config.vocab_size)
        self.context = int(getattr(self.text_config, "max_position_embeddings", 1 << 20))
        self.device, self.dtype = next(model.parameters()).device, next(model.parameters()).dtype
        self.fingerprint = fingerprint or Fingerprint(hash_tensors(model.state_dict().items()), dtype=_name(self.dtype))
        self.eos = _eos_ids(model, tokenizer)
        self._decoder = model.get_decoder()
        # transformers 5.24 calls the argument `cache`, 5.17 `past_key_values`; the wrong one is silently swallowed there
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._lock = threading.RLock()  # taps are hooks on the shared model: one forward at a time
        self._fold = fold_of(model)
        self.graphs = Graphs(self._run, self.layers, next(model.parameters()), self._fold, self._note)

    @classmethod
    def load(cls, name: str = DEFAULT_TARGET, device: str | None = None, dtype: str | None = None, *, graphs: bool | None = None) -> Target:
        """Loads a target by key, folder or hub id. Raises Missing, UnsupportedModel or BadInput with what to do.

        `graphs` says whether verification is replayed from CUDA graphs (None: on CUDA only); see `use_graphs`.
        """
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        place, notes = pick_device(device)
        if dtype is not None and dtype not in DTYPES:
            raise BadInput(f"dtype={dtype!r} is not known. Expected one of: {', '.join(DTYPES)}.")
        source = locate(name)
        try:
            config = AutoConfig.from_pretrained(source)
            refuse_unsupported(config)
            model, info = AutoModelForCausalLM.from_pretrained(source, dtype=DTYPES[dtype or "float32"], output_loading_info=True)
            tokenizer = AutoTokenizer.from_pretrained(source)
        except (OSError, ValueError, RuntimeError, SafetensorError) as problem:
            raise Missing(f"Could not load {name!r} from {source}: {problem}") from problem
        if lost := sorted(info["missing_keys"]):  # transformers would fill them with random numbers
            raise Missing(f"{source} lacks {len(lost)} of the model's tensors, {lost[0]!r} among them. Fetch the weights again.")
        if dtype is None and model.num_parameters() > FP32_LIMIT:
            dtype, model = "bfloat16", model.to(torch.bfloat16)
            notes += (f"{name} has {model.num_parameters() / 1e9:.1f} B parameters, so bfloat16 is used: near-ties may flip.",)
        torch.set_float32_matmul_precision("highest")  # TF32 off: exact means equal
        folder = Path(source) if Path(source).is_dir() else hub.cached(source)
        hashed = (hash_folder(folder) if folder else None) or hash_tensors(model.state_dict().items())
        model = model.to(place)
        use_tree_attention(model)
        stock = pack_linears(model) if place.type == "cpu" and model.dtype == torch.float32 else None
        notes += (f"Verification uses torch's stock linear layers, which makes trees dearer: {stock}.",) if stock else ()
        slow = fuse_norms(model)
        notes += (f"Norms of this model run as their own small kernels, which makes every forward dearer: {slow}.",) if slow else ()
        target = cls(model, tokenizer, short_name(name), Fingerprint(hashed, dtype=_name(model.dtype)), notes)
        try:
            target.self_check()
        except (RuntimeError, IndexError) as problem:
            raise UnsupportedModel(f"{name} could not verify a small tree: {problem}") from problem
        if place.type == "cuda" if graphs is None else graphs:
            target.use_graphs()
        return target

    def use_graphs(self) -> None:
        """Verifies by replay over static shapes from now on: CUDA graphs, or on a CPU the same shapes without a graph.

        Where this model cannot be captured, or gives other logits then, the ordinary path stays and `notes` say why.
        """
        self.graphs.on = True
        try:
            self.self_check()
        except (UnsupportedModel, RuntimeError, IndexError) as problem:
            self.graphs.give_up(str(problem))

    @property
    def runs_ahead(self) -> bool:
        """True where a forward is enqueued rather than done when it returns: then results are best fetched in one go."""
        return self.graphs.mode != "off" or self.device.type == "cuda"

    def _note(self, text: str) -> None:
        self.notes += (text,)
        warnings.warn(text, stacklevel=2)

    def new_cache(self, batch: int, capacity: int) -> TreeCache:
        """Returns a cache of the caller's own; `capacity` counts prompt, new tokens and the nodes of one tree."""
        return self.graphs.new_cache(batch, capacity)

    def prefill(self, ids: Sequence[int], cache: TreeCache, row: int = 0, taps: Sequence[int] = ()) -> Output:
        """Runs the prompt of one row plainly causal, in chunks, commits it, and returns the last position's logits and all taps.

        Raises CacheFull before anything runs when the prompt does not fit.
        """
        if not ids:
            raise BadInput("The prompt is empty: at least one token is needed to decode from.")
        cache.require([row], len(ids))
        kept: dict[int, list[torch.Tensor]] = {tap: [] for tap in taps}
        for start in range(0, len(ids), PREFILL_CHUNK):
            piece = torch.tensor([ids[start : start + PREFILL_CHUNK]], device=self.device)
            cache.begin([row], piece.shape[1], self.device)
            positions = torch.arange(cache.base, cache.view, device=self.device)[None]
            output = self._run(piece, positions, None, cache, taps, keep=1)
            cache.commit(row, range(piece.shape[1]))
            for tap in taps:
                kept[tap].append(output.hidden[tap])
        return Output(output.logits, {tap: torch.cat(pieces, 1) for tap, pieces in kept.items()})

    def prefill_rows(self, prompts: Sequence[Sequence[int]], cache: TreeCache, rows: Sequence[int]) -> None:
        """Runs the prompts of several EMPTY rows, those of similar length together, and commits them; nothing is returned.

        Raises CacheFull before anything runs when one does not fit.
        """
        cache.require(rows, max(map(len, prompts), default=0))
        order = sorted((len(prompt), row, prompt) for row, prompt in zip(rows, prompts, strict=True) if prompt)
        while order:
            width = order[-1][0]
            if width > PREFILL_CHUNK:
                _, row, prompt = order.pop()
                self.prefill(prompt, cache, row)
                continue
            count = max(1, PREFILL_ROWS // width)
            order, group = order[:-count], order[-count:]
            cache.begin([row for _, row, _ in group], width, self.device)
            ids = send([[*prompt, *[0] * (width - length)] for length, _, prompt in group], self.device)
            self._run(ids, torch.arange(width, device=self.device).expand(len(group), -1), None, cache, (), keep=1)
            for length, row, _ in group:
                cache.commit(row, range(length))

    def forward(self, trees: Sequence[TokenTree], cache: TreeCache, rows: Sequence[int] | None = None, taps: Sequence[int] = ()) -> Output:
        """Verifies one tree per row in ONE pass; returns logits at every node (rows padded to the largest tree) and the taps.

        Nothing is committed: call `cache.commit(row, path)` for what is kept. Raises CacheFull before the pass.
        """
        rows = range(len(trees)) if rows is None else rows
        if self.graphs.on and (seen := self.graphs.verify(trees, cache, rows, taps)) is not None:
            return Output(seen.logits, seen.hidden)
        width = max(len(tree) for tree in trees)
        cache.begin(rows, width, self.device)
        tokens = [[*tree.tokens, *[0] * (width - len(tree))] for tree in trees]
        lengths = [cache.lengths[row] for row in rows]
        positions = [[length + depth for depth in (*tree.depths, *[0] * (width - len(tree)))] for tree, length in zip(trees, lengths, strict=True)]
        mask = self._mask(trees, lengths, width, cache.view)
        return self._run(torch.tensor(tokens, device=self.device), torch.tensor(positions, device=self.device), mask, cache, taps)

    def _mask(self, trees: Sequence[TokenTree], lengths: Sequence[int], width: int, view: int) -> torch.Tensor:
        """Returns the additive mask [rows, 1, nodes, view]: committed prefix and own ancestors only; repeated as `fold_of` says.

        Float with the dtype's minimum, never bool or -inf: eager attention adds a bool mask as 0/1, and a row of -inf is NaN.
        """
        floor = torch.finfo(self.dtype).min
        mask = torch.full((len(trees), 1, self._fold, width, view), floor, dtype=self.dtype, device=self.device)
        for i, (tree, length) in enumerate(zip(trees, lengths, strict=True)):
            mask[i, 0, :, :, :length] = 0
            mask[i, 0, :, :, length : length + width] = _tree_mask(tree.parents, width, self.dtype).to(self.device)
        return mask.flatten(2, 3)

    def _run(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: TreeCache, taps: Sequence[int], keep: int = 0) -> Output:
        with self._lock, torch.inference_mode(), tapped(self._decoder, taps, self.name) as hidden:
            arguments = {"input_ids": ids, "position_ids": positions, "attention_mask": mask, "use_cache": True, self._cache_name: cache}
            logits = self.model(**arguments, logits_to_keep=keep).logits
        return Output(logits, hidden)

    def encode(self, prompt: str, chat: bool = True) -> list[int]:
        """Returns the token ids of one user turn in the model's chat template (plain text without one, or when `chat` is False).

        Raises BadInput for text that no tokenizer reads (lone surrogates: bytes that were not UTF-8).
        """
        if any("\ud800" <= letter <= "\udfff" for letter in prompt):
            raise BadInput("The prompt is not valid text: it holds bytes that are not UTF-8. Save it as UTF-8 and try again.")
        if chat and getattr(self.tokenizer, "chat_template", None):
            turn = [{"role": "user", "content": prompt}]
            return list(self.tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=True, return_dict=False))
        return list(self.tokenizer(prompt).input_ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids, special tokens included and nothing cleaned up."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def self_check(self) -> None:
        """Compares a small tree with cacheless forwards; raises UnsupportedModel when they disagree."""
        limit = 1e-3 if self.dtype in (torch.float32, torch.float64) else 0.25
        prefix, step = [1 % self.vocab_size, 7 % self.vocab_size, 5 % self.vocab_size], max(1, self.vocab_size // 11)
        tree = TokenTree(tuple((i * step) % self.vocab_size for i in range(1, 6)), (-1, 0, 0, 1, 2))
        cache = self.new_cache(1, len(prefix) + len(tree))
        self.prefill(prefix, cache)
        logits = self.forward([tree], cache).logits[0]
        for node in (3, 4):
            path = [*prefix, tree.tokens[0], *(tree.tokens[n] for n in tree.path_to(node))]
            with torch.inference_mode():
                plain = self.model(input_ids=torch.tensor([path], device=self.device), use_cache=False).logits[0, -1]
            scale = max(1.0, float(plain.abs().max()))
            worst = float((plain - logits[node]).abs().max()) / scale
            if not worst <= limit:
                raise UnsupportedModel(
                    f"{self.name}: logits at a tree node differ from a plain forward by {worst:.2g} (relative), more than {limit}. Tree verification would be wrong for this model."
                )


@lru_cache(maxsize=256)
def _tree_mask(parents: tuple[int, ...], width: int, dtype: torch.dtype) -> torch.Tensor:
    allowed = torch.tensor(ancestor_mask(parents, width))
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill_(~allowed, torch.finfo(dtype).min)


def pick_device(device: str | None = None) -> tuple[torch.device, tuple[str, ...]]:
    """Returns the device (CUDA where there is one, else CPU) and what a person should be told about the choice."""
    if device in (None, "", "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu"), ()
    try:
        place = torch.device(str(device))
    except RuntimeError:
        raise BadInput(f"device={device!r} is not known. Expected auto, cpu, cuda or cuda:0.") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        return torch.device("cpu"), (f"{device} was asked for, but torch {torch.__version__} sees no CUDA device: the CPU is used instead.",)
    if place.type not in ("cpu", "cuda"):
        return place, (f"{place.type} is untested: specviz is tested on cpu and cuda only.",)
    return place, ()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for holder in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(holder, "eos_token_id", None)
        found |= {value} if isinstance(value, int) else set(value or ())
    return frozenset(found)
