"""Heads that are no heads, and sizes that no head can have: the doctor and the loader refuse the same, in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import makers
from checkpoints.own import SIZES, own_head
from safetensors.torch import load_file, save_file

from specviz import shapes
from specviz.checkpoints.base import ERROR
from specviz.checkpoints.conversion import convert, load
from specviz.checkpoints.doctor import inspect
from specviz.drafters.eagle3 import Eagle3
from specviz.drafters.head_file import load_head
from specviz.drafters.head_sizes import read_sizes
from specviz.errors import BadFile, BadInput, Missing
from specviz.registry import bind
from specviz.sources import Fingerprint

TAPS = "eagle_aux_hidden_state_layer_ids"


def changed(folder: Path, **sizes: Any) -> Path:
    record = json.loads((folder / "config.json").read_text())
    record["sizes"] |= sizes
    (folder / "config.json").write_text(json.dumps(record))
    return folder


def errors(path: Path) -> str:
    return " ".join(problem.text for problem in inspect(path).problems if problem.level == ERROR)


@pytest.mark.parametrize("name", ["x.png", "x.bin", "x.safetensors", "x.pt", "x"])
@pytest.mark.parametrize("held", [b"", b"\x89PNG\r\n\x1a\n" + os.urandom(200), b"root:x:0:0:root:/root:/bin/bash\n" * 3, b"\xff" * 40])
def test_a_file_that_is_no_checkpoint_is_a_diagnosis(tmp_path: Path, name: str, held: bytes) -> None:
    (tmp_path / name).write_bytes(held)
    assert not inspect(tmp_path / name).usable
    assert errors(tmp_path / name)


def test_a_folder_without_anything_is_named(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="holds no weights"):
        inspect(tmp_path)


@pytest.mark.parametrize("config", ["[", "[" * 100_000, "[]", "\ud800"])
def test_a_config_that_is_no_json_is_named(tmp_path: Path, config: str) -> None:
    folder = makers.eagle(tmp_path / "x")
    (folder / "config.json").write_bytes(config.encode("utf-8", "surrogatepass"))
    assert "config.json" in errors(folder)


LAYER_SIZES = [
    {"hidden": -1}, {"hidden": 0}, {"hidden": 1e99}, {"hidden": None}, {"hidden": 10**12}, {"hidden": "64"}, {"hidden": True}, {"intermediate": 10**15},
    {"rope_theta": "x"}, {"rope_theta": 0}, {"rope_theta": -5.0}, {"rope_theta": None}, {"rope_theta": 1e308}, {"norm_eps": -1e-5}, {"norm_eps": 0},
    {"kv_heads": 3}, {"head_dim": 15}, {"draft_vocab": 0}, {"bogus": 1}, {"qkv_bias": "x"}, {"rope_scaling": "x"}, {"rope_scaling": {"rope_type": "llama3"}},
    {"rope_scaling": {"rope_type": "linear", "factor": 0}}, {"rope_scaling": {"rope_type": ["x"]}},
]  # fmt: skip
ODD = [("eagle3", size) for size in LAYER_SIZES] + [
    ("eagle3", {"taps": "abc"}), ("eagle3", {"taps": None}), ("eagle3", {"taps": [2, 15]}), ("eagle3", {"taps": [1, 1, 2]}), ("eagle3", {"taps": [-1, 1, 2]}),
    ("eagle3", {"taps": [0.5, 1, 2]}), ("eagle3", {"taps": [0, 1, 10**30]}), ("eagle3", {"tap_count": 10**9}), ("eagle3", {"feature": 0}),
    ("medusa", {"heads": 0}), ("medusa", {"heads": 10**9}), ("medusa", {"blocks": 10**9}), ("medusa", {"own_rows": 2}), ("hydra", {"heads": 10**7}),
    ("hydra", {"state_offset": -1}), ("hydra", {"grounded": "no"}), ("hydra", {"prefix": "abc"}), ("hydra", {"prefix": {}}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "odd"), ODD, ids=str)
def test_sizes_that_no_head_has_are_refused_alike(tmp_path: Path, method: str, odd: dict[str, Any]) -> None:
    folder = changed(own_head(tmp_path / "x", method, Fingerprint("abc")), **odd)
    assert next(iter(odd)) in errors(folder)
    with pytest.raises(BadFile, match=next(iter(odd))):
        load_head(folder, method)


@pytest.mark.parametrize("odd", [{"rope_theta": 0}, {"norm_eps": -1.0}, {"taps": [0, 1, 1]}, {"taps": [0, 1]}])
def test_a_drafter_refuses_them_too(tmp_path: Path, tiny_target: Any, odd: dict[str, Any]) -> None:
    folder = changed(own_head(tmp_path / "x", "eagle3", tiny_target.fingerprint), **odd)
    with pytest.raises(BadFile, match=f"{next(iter(odd))}=.* expected"):
        Eagle3(tiny_target, shape=bind(shapes, "chain"), checkpoint=str(folder))


def test_no_module_is_made_that_the_file_cannot_fill(tmp_path: Path) -> None:
    folder = changed(own_head(tmp_path / "x", "eagle", Fingerprint("abc")), intermediate=1 << 24)
    with pytest.raises(BadFile, match=r"does not fit its own config\.json: gate_proj"):
        load_head(folder, "eagle")


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_sizes_that_heads_have_are_read_back(sizes: Any) -> None:
    method = {"MedusaSizes": "medusa", "HydraSizes": "hydra", "EagleSizes": "eagle", "Eagle3Sizes": "eagle3"}[type(sizes).__name__]
    assert read_sizes(method, json.loads(json.dumps(sizes.to_json()))) == sizes


def test_doctor_and_loader_agree_about_tensors_of_no_part(tmp_path: Path) -> None:
    folder = own_head(tmp_path / "x", "medusa", Fingerprint("abc"))
    save_file(load_file(folder / "model.safetensors") | {"bogus": torch.zeros(3)}, folder / "model.safetensors")
    assert "bogus is in model.safetensors but no part" in errors(folder)
    with pytest.raises(BadFile, match="bogus is no part of it"):
        load_head(folder, "medusa")
    foreign = makers.medusa_v1(tmp_path / "foreign")
    torch.save(torch.load(foreign / "medusa_lm_head.pt") | {"bogus": torch.zeros(3)}, foreign / "medusa_lm_head.pt")
    assert inspect(foreign).usable
    assert "would be ignored" in " ".join(load(foreign).notes)


@pytest.mark.parametrize("held", ["float", "flat", "gone", "empty", "twice"])
def test_doctor_and_loader_agree_about_the_vocabulary(tmp_path: Path, held: str) -> None:
    folder = own_head(tmp_path / "x", "medusa", Fingerprint("abc"))
    tensors = load_file(folder / "model.safetensors")
    ids = tensors.pop("vocabulary")
    odd = {"float": ids.float(), "flat": ids[None], "gone": None, "empty": ids[:0], "twice": torch.cat((ids[:1], ids[:-1]))}[held]
    save_file(tensors | ({} if odd is None else {"vocabulary": odd}), folder / "model.safetensors")
    assert "vocabulary" in errors(folder)
    with pytest.raises(BadFile, match="vocabulary"):
        load_head(folder, "medusa")


@pytest.mark.parametrize("part", [{"target": "x"}, {"target": None}, {"target": {"weights": 5}}, {"training": "x"}, {"training": [1]}, {"sizes": None}])
def test_doctor_and_loader_agree_about_the_rest_of_the_config(tmp_path: Path, part: dict[str, Any]) -> None:
    folder = own_head(tmp_path / "x", "medusa", Fingerprint("abc"))
    record = json.loads((folder / "config.json").read_text()) | part
    (folder / "config.json").write_text(json.dumps(record))
    assert not inspect(folder).usable
    with pytest.raises(BadFile, match=next(iter(part))):
        load_head(folder, "medusa")


@pytest.mark.parametrize(
    ("maker", "config"),
    [
        (makers.eagle3, {"eagle_config": "abc"}), (makers.eagle3, {"eagle_config": {TAPS: "abc"}}), (makers.eagle3, {"eagle_config": {TAPS: ["a"]}}),
        (makers.eagle3, {TAPS: 5}), (makers.eagle3, {TAPS: [-1, 1, 2]}), (makers.eagle3, {TAPS: [0, 1, 10**30]}), (makers.eagle3, {"norm_before_residual": "false"}),
        (makers.eagle3, {"hidden_size": 1e99}), (makers.eagle3, {"num_key_value_heads": 3}), (makers.eagle3, {"head_dim": 15}),
        (makers.speculators, {"eagle_config": [1]}), (makers.speculators, {TAPS: 5}), (makers.eagle, {"rope_theta": 0}), (makers.eagle, {"hidden_act": ["x"]}),
        (makers.eagle, {"rope_scaling": "x"}), (makers.eagle, {"rope_scaling": {"type": "linear", "factor": "x"}}), (makers.eagle, {"hidden_act": "gelu"}),
        (makers.medusa_vllm, {"truncated_vocab_size": "x"}), (makers.hydra, {"hidden_state_offset": "x"}), (makers.hydra, {"hidden_state_offset": -3}),
    ],
)  # fmt: skip
def test_odd_values_of_a_foreign_config_are_errors(tmp_path: Path, maker: Any, config: dict[str, Any]) -> None:
    folder = maker(tmp_path / "x")
    record = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(record))
    assert errors(folder)
    with pytest.raises(BadFile):
        load(folder)


@pytest.mark.parametrize(
    "record", ["[]", '{"method": "medusa"}', '{"method": "medusa", "sizes": {"hidden": -64}, "vocabulary": [1], "taps": []}', "[" * 100_000]
)
def test_the_doctor_reads_the_record_beside_a_foreign_head(tmp_path: Path, record: str) -> None:
    folder = makers.medusa_v1(tmp_path / "x")
    (folder / "specviz.json").write_text(record)
    assert "specviz.json" in errors(folder)


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    folder = own_head(tmp_path / "x", "medusa", Fingerprint("abc"))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="Cannot write"):
        convert(folder, "native", tmp_path / "file" / "out")
    with pytest.raises(BadInput, match="nosuchuser"):
        convert(folder, "native", "~nosuchuser/x")
    with pytest.raises(BadFile, match="cannot be read as a target"):
        inspect(folder, folder)
