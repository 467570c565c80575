"""The serving snippet and the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from checkpoints import makers
from checkpoints.own import own_head

from specviz.checkpoints._files import open_files
from specviz.checkpoints._target import open_target
from specviz.checkpoints.conversion import export_vllm, load
from specviz.checkpoints.serving import draft_length
from specviz.cli import main
from specviz.errors import BadInput
from specviz.sources import Fingerprint


@pytest.fixture
def fingerprint(tiny_folder: Path) -> Fingerprint:
    return open_target(tiny_folder).fingerprint


@pytest.mark.parametrize(("kind", "form"), [("medusa", "medusa_vllm"), ("eagle", "eagle"), ("eagle3", "speculators")])
def test_export_writes_what_vllm_loads_and_says_how(kind: str, form: str, tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    out = tmp_path / "there"
    snippet = export_vllm(own_head(tmp_path / "ours", kind, fingerprint), out, tiny_folder)
    assert snippet.config == {"method": kind, "model": str(out), "num_speculative_tokens": 2}
    assert json.loads((out / "vllm.json").read_text()) == snippet.config
    words = shlex.split(snippet.command)
    assert words[:4] == ["vllm", "serve", str(tiny_folder), "--speculative-config"]
    assert json.loads(words[4]) == snippet.config
    assert "0.60, 0.50, 0.10" in snippet.why
    assert json.loads((out / "config.json").read_text()).get("speculators_model_type") == ("eagle3" if form == "speculators" else None)


def test_vllm_gets_no_fc_bias_and_is_told_so(tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    out = tmp_path / "there"
    snippet = export_vllm(own_head(tmp_path / "ours", "eagle", fingerprint), out, tiny_folder)
    assert "fc.bias" not in open_files(out).entries
    assert json.loads((out / "config.json").read_text())["bias"] is False
    assert "fc.bias was left out" in snippet.text()
    assert "left out" not in export_vllm(own_head(tmp_path / "medusa", "medusa", fingerprint), tmp_path / "other", tiny_folder).text()


def test_the_draft_length_is_measured_asked_for_or_said_to_be_unknown(tmp_path: Path, fingerprint: Fingerprint, tiny_folder: Path) -> None:
    measured = load(own_head(tmp_path / "ours", "medusa", fingerprint))
    assert draft_length(measured).tokens == 2, "0.6, then 0.6 x 0.5, then 0.03: the third is below one in ten"
    assert draft_length(measured, 3).tokens == 3
    with pytest.raises(BadInput, match="1 to 3"):
        draft_length(measured, 4)
    official = load(makers.eagle3(tmp_path / "official"), tiny_folder)
    assert "not measured" in draft_length(official).why
    assert draft_length(load(makers.medusa_v1(tmp_path / "v1", heads=5))).tokens == 5


def test_hydra_heads_cannot_be_served_by_vllm(tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(BadInput, match="cannot run hydra"):
        export_vllm(makers.hydra(tmp_path / "a"), tmp_path / "b", tiny_folder)
    assert not (tmp_path / "b").exists()


def test_inspect_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "inspect", str(makers.medusa_v1(tmp_path / "a", heads=5, medusa_num_heads=2))]) == 0
    told = capsys.readouterr().out
    assert "medusa_v1" in told
    assert "wrong_head_count" in told
    broken = makers.eagle3(tmp_path / "b", drop=("norm.weight",))
    assert main(["checkpoint", "inspect", str(broken), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["format"], record["usable"]) == ("eagle3", False)
    assert record["problems"][0]["name"] == "missing_tensors"


def test_convert_and_export_on_the_command_line(tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint, capsys: pytest.CaptureFixture[str]) -> None:
    ours = own_head(tmp_path / "ours", "medusa", fingerprint)
    assert main(["checkpoint", "convert", str(ours), "--to", "medusa_shared", str(tmp_path / "there"), "--target", str(tiny_folder)]) == 0
    assert (tmp_path / "there" / "medusa_lm_head.safetensors").exists()
    assert main(["checkpoint", "export", str(ours), "--to", "vllm", str(tmp_path / "served"), "--target", str(tiny_folder), "--draft-length", "1"]) == 0
    told = capsys.readouterr().out
    assert '"num_speculative_tokens": 1' in told
    assert "vllm serve" in told
    assert main(["checkpoint", "export", str(ours), str(tmp_path / "again")]) == 2
    assert "--target" in capsys.readouterr().err


def test_a_head_below_its_target_needs_no_target_named(tmp_path: Path, tiny_target, fingerprint: Fingerprint, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_target.model.save_pretrained(tmp_path / "tiny")
    head = own_head(tmp_path / "tiny" / "medusa", "medusa", Fingerprint("0" * 16))
    assert main(["checkpoint", "inspect", str(head)]) == 0
    assert "fingerprint_mismatch" in capsys.readouterr().out
