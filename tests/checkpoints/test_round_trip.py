"""Ours -> foreign -> ours: the same tensors, the same logits, the same drafted tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoints import makers
from checkpoints.own import SIZES, own_head
from torch import Tensor, nn
from transformers import LlamaConfig

from specviz.checkpoints._files import open_files
from specviz.checkpoints._sidecar import NAME
from specviz.checkpoints.base import build
from specviz.checkpoints.conversion import convert, load
from specviz.checkpoints.doctor import detect, inspect
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.drafters.head_sizes import METHODS
from specviz.errors import BadFile, BadInput
from specviz.sources import Fingerprint
from specviz.target import Target

H, V = makers.H, makers.V
ROUTES = [
    ("medusa", "medusa_v1"), ("medusa", "medusa_shared"), ("medusa", "medusa_vllm"), ("hydra", "hydra"), ("hydra-prefix", "hydra"),
    ("eagle", "eagle"), ("eagle3", "eagle3"), ("eagle3", "speculators"), ("eagle3-shared-rows", "eagle3"), ("eagle3-shared-rows", "speculators"),
]  # fmt: skip


@pytest.fixture
def fingerprint(tiny_folder: Path) -> Fingerprint:
    from specviz.checkpoints._target import open_target

    return open_target(tiny_folder).fingerprint


def logits(module: nn.Module, rows: Tensor) -> Tensor:
    """Logits of the module on fixed random input, two draft steps where it has steps."""
    torch.manual_seed(4)
    tokens, hidden = torch.randn(1, 6, H), torch.randn(1, 6, H)
    kind = type(module).__name__
    if kind == "MedusaHeads":
        return module.predict(module(hidden), rows)
    if kind == "HydraHeads":
        return torch.stack([module.predict(i, output, rows) for i, output in enumerate(module(tokens, hidden))])
    if kind == "EagleLayer":
        return torch.stack([output @ rows.T for output in module(tokens, hidden, 2)])
    return torch.stack([module.predict(output, rows) for output in module(tokens, torch.randn(1, 6, 3 * H), 2)])


@pytest.mark.parametrize(("kind", "to"), ROUTES, ids=lambda part: part)
def test_there_and_back(kind: str, to: str, tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    ours = own_head(tmp_path / "ours", kind, fingerprint)
    there = convert(ours, to, tmp_path / "there", tiny_folder)
    assert detect(open_files(there.folder))[0] == to
    back = convert(there.folder, "native", tmp_path / "back", tiny_folder)
    first, last = load(ours), load(back.folder)
    assert last.sizes.to_json() == first.sizes.to_json()
    assert last.fingerprint == first.fingerprint == fingerprint
    assert torch.equal(last.vocabulary, first.vocabulary)
    assert set(last.weights) == set(first.weights)
    assert all(torch.equal(last.weights[name], tensor) for name, tensor in first.weights.items())
    rows = torch.randn(makers.DRAFT, H)
    assert torch.equal(logits(build(last), rows), logits(build(first), rows))


@pytest.mark.parametrize(("kind", "to"), ROUTES, ids=lambda part: part)
def test_the_doctor_finds_nothing_wrong_with_what_is_written(kind: str, to: str, tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    ours = own_head(tmp_path / "ours", kind, fingerprint)
    found = inspect(convert(ours, to, tmp_path / "there", tiny_folder).folder, tiny_folder)
    assert {problem.name for problem in found.problems} <= {"fc_bias_vllm"}, found.problems
    assert found.usable


@pytest.mark.parametrize(("kind", "to"), [("medusa", "medusa_vllm"), ("eagle3", "eagle3"), ("eagle3", "speculators"), ("eagle3-shared-rows", "speculators")])
def test_the_foreign_files_alone_hold_the_head(kind: str, to: str, tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    """Without the record beside them, these formats still carry vocabulary and rows: the same drafts up to the rounding of fp16."""
    ours = own_head(tmp_path / "ours", kind, fingerprint)
    there = convert(ours, to, tmp_path / "there", tiny_folder).folder
    (there / NAME).unlink()
    first, last = load(ours), load(there, tiny_folder)
    assert torch.equal(last.vocabulary, first.vocabulary)
    rows = open_files(tiny_folder).tensor("lm_head.weight")[first.vocabulary]
    torch.testing.assert_close(logits(build(last), rows), logits(build(first), rows), atol=0.02, rtol=0.01)


@pytest.mark.parametrize(
    ("name", "to"),
    [("medusa_v1", "medusa_vllm"), ("medusa_vllm", "medusa_v1"), ("medusa_full", "medusa_v1"), ("eagle3", "speculators"), ("speculators", "eagle3")],
)
def test_one_foreign_format_to_another(name: str, to: str, tmp_path: Path, tiny_folder: Path) -> None:
    source = makers.ALL[name](tmp_path / name, **({"base_model_name_or_path": "some/base"} if name == "eagle3" else {}))
    made = convert(source, to, tmp_path / "made")
    first, last = load(source), load(made.folder)
    assert all(torch.equal(last.weights[key], tensor) for key, tensor in first.weights.items())
    assert torch.equal(last.vocabulary, first.vocabulary)
    assert {problem.name for problem in inspect(made.folder).problems} == set()


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_transformers_reads_the_config_that_is_written(kind: str, tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    made = convert(own_head(tmp_path / "ours", kind, fingerprint), kind, tmp_path / "there", tiny_folder)
    config = LlamaConfig.from_pretrained(made.folder)
    assert config.rope_parameters["rope_theta"] == 10000.0
    assert (config.num_key_value_heads, config.head_dim, config.vocab_size, config.max_position_embeddings) == (2, 16, V, 2048)


def test_speculators_config_has_what_vllm_asks_for(tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    made = convert(own_head(tmp_path / "ours", "eagle3", fingerprint), "speculators", tmp_path / "there", tiny_folder)
    config = json.loads((made.folder / "config.json").read_text())
    inner = config["speculators_config"]
    assert config["norm_before_residual"] is False, "loaders disagree on what a missing one means"
    assert config["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert inner["proposal_methods"][0]["speculative_tokens"] == 2, "two depths are reached by one chain in ten"
    assert inner["verifier"] == {"name_or_path": str(tiny_folder), "architectures": ["LlamaForCausalLM"]}
    names = set(open_files(made.folder).entries)
    assert {"layers.0.self_attn.q_proj.weight", "d2t", "t2d", "lm_head.weight"} <= names
    assert not any(name.startswith("midlayer.") for name in names)


def test_d2t_holds_offsets(tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    made = convert(own_head(tmp_path / "ours", "eagle3", fingerprint), "eagle3", tmp_path / "there", tiny_folder)
    files = open_files(made.folder)
    d2t, t2d = files.tensor("d2t"), files.tensor("t2d")
    assert (d2t.dtype, t2d.dtype) == (torch.int64, torch.bool)
    assert torch.equal(torch.arange(makers.DRAFT) + d2t, makers.draft_ids())
    assert torch.equal(t2d.nonzero()[:, 0], makers.draft_ids())


def test_a_whole_vocabulary_needs_no_map(tmp_path: Path) -> None:
    made = convert(makers.eagle3(tmp_path / "a", reduced=False, base_model_name_or_path="some/base"), "speculators", tmp_path / "b")
    assert not {"d2t", "t2d"} & set(open_files(made.folder).entries)
    assert torch.equal(load(made.folder).vocabulary, torch.arange(V))


def test_targets_in_one_file_with_tied_embeddings_serve_as_well(tmp_path: Path, make_target, fingerprint: Fingerprint) -> None:
    """No index file, no lm_head.weight: the rows are the embeddings."""
    tied: Target = make_target(tie_word_embeddings=True)
    folder = tmp_path / "tied"
    tied.model.save_pretrained(folder)
    assert "lm_head.weight" not in open_files(folder).entries
    made = convert(own_head(tmp_path / "ours", "medusa", fingerprint), "medusa_vllm", tmp_path / "there", folder)
    table = tied.model.get_input_embeddings().weight[makers.draft_ids()].half()
    assert torch.equal(open_files(made.folder).tensor("lm_heads.0.weight"), table)


def test_formats_that_need_the_target_say_so(tmp_path: Path, fingerprint: Fingerprint) -> None:
    for kind, to in (("medusa", "medusa_v1"), ("medusa", "medusa_vllm"), ("hydra", "hydra"), ("eagle3-shared-rows", "eagle3"), ("eagle3", "speculators")):
        with pytest.raises(BadInput, match="--target"):
            convert(own_head(tmp_path / kind, kind, fingerprint), to, tmp_path / "out")
        assert not (tmp_path / "out").exists(), "a failed conversion leaves nothing"


def test_official_eagle3_layers_need_the_target_to_become_ours(tmp_path: Path, tiny_folder: Path) -> None:
    source = makers.eagle3(tmp_path / "a")
    with pytest.raises(BadInput, match="--target"):
        convert(source, "native", tmp_path / "b")
    assert load(convert(source, "native", tmp_path / "b", tiny_folder).folder).sizes.taps == (2, 1, 0)


def test_a_head_cannot_become_another_method(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="medusa head, which cannot become eagle3"):
        convert(makers.medusa_v1(tmp_path / "a"), "eagle3", tmp_path / "b")
    with pytest.raises(BadInput, match="No format 'onnx'"):
        convert(makers.medusa_v1(tmp_path / "c"), "onnx", tmp_path / "d")


def test_an_output_folder_with_files_is_refused(tmp_path: Path) -> None:
    source = makers.medusa_v1(tmp_path / "a")
    with pytest.raises(BadInput, match="is not empty"):
        convert(source, "medusa_vllm", source)
    (tmp_path / "empty").mkdir()
    assert convert(source, "medusa_vllm", tmp_path / "empty").folder.exists()


def test_blocks_that_differ_cannot_be_written_in_the_official_form(tmp_path: Path, fingerprint: Fingerprint) -> None:
    sizes = replace(SIZES["medusa"], blocks=2)
    module = METHODS["medusa"][1](sizes)
    torch.manual_seed(0)
    for weight in module.parameters():
        nn.init.normal_(weight)
    save_head(tmp_path / "ours", HeadConfig("medusa", sizes.to_json(), fingerprint), module, makers.draft_ids())
    with pytest.raises(BadInput, match="--to medusa_vllm"):
        convert(tmp_path / "ours", "medusa_shared", tmp_path / "there")


def test_numbers_beyond_fp16_are_refused(tmp_path: Path) -> None:
    tensors = makers.eagle_tensors()
    tensors = {name: tensor.float() for name, tensor in tensors.items()} | {"fc.weight": tensors["fc.weight"].float() * 1e7}
    source = makers.save(tmp_path / "a", makers.llama_config(), tensors)
    with pytest.raises(BadFile, match="fp16"):
        convert(source, "native", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_record_of_another_head_is_noticed(tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    made = convert(own_head(tmp_path / "ours", "medusa", fingerprint), "medusa_shared", tmp_path / "there", tiny_folder)
    record = json.loads((made.folder / NAME).read_text())
    (made.folder / NAME).write_text(json.dumps(record | {"vocabulary": [1, 2, 3]}))
    with pytest.raises(BadFile, match="is not about the weights beside it"):
        load(made.folder, tiny_folder)


EITHER = {"input_embed_fn.weight", "prefix_embeding_layer.embed_tokens.weight", "embed_tokens.weight", "token_map", "lm_heads.1.weight", "lm_heads.2.weight"}


@pytest.mark.parametrize(("kind", "to"), ROUTES, ids=lambda part: part)
def test_names_and_shapes_are_the_official_ones(kind: str, to: str, tmp_path: Path, tiny_folder: Path, fingerprint: Fingerprint) -> None:
    arguments = {"prefix": True} if kind == "hydra-prefix" else {}
    theirs = open_files(makers.ALL[to](tmp_path / "theirs", **arguments))
    mine = open_files(convert(own_head(tmp_path / "ours", kind, fingerprint), to, tmp_path / "mine", tiny_folder).folder)
    names = set(theirs.entries) - EITHER
    assert set(mine.entries) - EITHER == names
    reduced = {"lm_heads.0.weight"}  # cut to the token map
    assert {name: mine.shape(name) for name in names - reduced} == {name: theirs.shape(name) for name in names - reduced}
    assert [file.name for file in mine.weights] == [file.name for file in theirs.weights] or to in ("eagle", "eagle3")


def test_the_fingerprint_comes_back_whatever_target_is_named(tmp_path: Path, tiny_folder: Path) -> None:
    other = Fingerprint("0123456789abcdef", dtype="bfloat16")
    there = convert(own_head(tmp_path / "ours", "medusa", other), "medusa_shared", tmp_path / "there", tiny_folder)
    assert load(convert(there.folder, "native", tmp_path / "back", tiny_folder).folder).fingerprint == other
