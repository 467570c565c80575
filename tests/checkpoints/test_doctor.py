"""Every trap of the public formats, as a small bad checkpoint: the doctor names it in one sentence that says what to do."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import makers
from safetensors.torch import load_file, save_file

from specviz.checkpoints.base import ERROR, Problem
from specviz.checkpoints.conversion import load
from specviz.checkpoints.doctor import inspect
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.drafters.medusa_module import MedusaHeads, MedusaSizes
from specviz.errors import BadFile
from specviz.sources import Fingerprint

H, V, DRAFT = makers.H, makers.V, makers.DRAFT
make = makers.Maker(11)
ABSOLUTE = {"d2t": makers.draft_ids()}
SERVING = {"algorithm": "eagle3", "default_proposal_method": "greedy"}


@dataclass(frozen=True)
class Trap:
    """A bad checkpoint: what makes it, the problem's name, words that its sentence must hold."""

    maker: Callable[..., Path]
    problem: str
    words: str
    arguments: dict[str, Any] = field(default_factory=dict)
    level: str = "warning"
    target: bool = False  # only seen when the target is named


def trap(maker: Callable[..., Path], problem: str, words: str, *, level: str = "warning", target: bool = False, **arguments: Any) -> Any:
    return pytest.param(Trap(maker, problem, words, arguments, level, target), id=f"{maker.__name__}-{problem}-{len(words)}")


def without(tensors: dict, *names: str) -> dict:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def two_blocks(folder: Path, **_: Any) -> Path:
    tensors = makers.medusa_tensors(2, 2) | {"1.1.linear.weight": make(H, H)}
    return makers.save(folder, {"medusa_num_heads": 2, "medusa_num_layers": 2}, tensors, "medusa_lm_head.pt")


def one_matrix_short(folder: Path, **_: Any) -> Path:
    return makers.save(folder, {"medusa_num_heads": 3}, without(makers.medusa_tensors(3), "2.1.weight"), "medusa_lm_head.pt")


def shared_block_missing(folder: Path, **_: Any) -> Path:
    return makers.save(folder, {"version": "2"}, without(makers.medusa_tensors(3, matrices=False), "1.0.linear.bias"), "medusa_lm_head.safetensors")


def short_prefix(folder: Path, **_: Any) -> Path:
    makers.hydra(folder, prefix=True)
    tensors = torch.load(folder / "hydra_lm_head.pt", weights_only=True)
    torch.save(without(tensors, "prefix_embeding_layer.layers.0.self_attn.v_proj.weight"), folder / "hydra_lm_head.pt")
    return folder


def other_arch(folder: Path, **_: Any) -> Path:
    return makers.save(folder, {"hydra_head_arch": "eagle-attn", "hydra_num_heads": 1}, {"decoder.weight": make(4, 4)}, "hydra_lm_head.pt")


def later_blocks(folder: Path, **_: Any) -> Path:
    makers.hydra(folder, layers=3)
    tensors = torch.load(folder / "hydra_lm_head.pt", weights_only=True)
    torch.save(tensors | {"hydra_mlp.1.2.linear.weight": make(H, H)}, folder / "hydra_lm_head.pt")
    return folder


def nan_weights(folder: Path, **_: Any) -> Path:
    return makers.eagle(folder, more={"layers.0.self_attn.o_proj.weight": torch.full((H, 64), float("nan"))})


def midlayer_speculators(folder: Path, **_: Any) -> Path:
    makers.speculators(folder)
    return makers.save(folder, None, makers.eagle3_tensors("midlayer."))


def residual_unsaid(folder: Path, **_: Any) -> Path:
    return makers.speculators(folder, norm_before_residual=None)


def prefix_hydra(folder: Path, **_: Any) -> Path:
    return makers.hydra(folder, prefix=True)


def lost_bias(folder: Path, **_: Any) -> Path:
    return makers.save(folder, makers.llama_config(), makers.eagle_tensors(bias=False))


def unused_bias(folder: Path, **_: Any) -> Path:
    return makers.save(folder, makers.llama_config(bias=False), makers.eagle_tensors())


T2D_OTHER = {"t2d": torch.arange(V) < DRAFT}
TRAPS = [
    # heads and blocks
    trap(makers.medusa_v1, "wrong_head_count", "medusa_num_heads = 2, the file holds 5 heads", heads=5, medusa_num_heads=2),
    trap(makers.medusa_full, "wrong_head_count", "set medusa_num_heads to 3", medusa_num_heads=4),
    trap(makers.medusa_vllm, "wrong_head_count", "num_heads = 5", num_heads=5),
    trap(makers.medusa_vllm, "wrong_head_count", "num_hidden_layers = 2", num_hidden_layers=2),
    trap(makers.hydra, "wrong_head_count", "hydra_num_heads = 4", hydra_num_heads=4),
    trap(makers.hydra, "wrong_block_count", "hydra_num_layers = 4", hydra_num_layers=4),
    trap(two_blocks, "blocks_differ", "runs one block 2 times"),
    trap(later_blocks, "blocks_differ", "runs one block 2 times"),
    trap(one_matrix_short, "missing_tensors", "3 heads but 2 LM matrices", level=ERROR),
    trap(shared_block_missing, "missing_tensors", "1.0.linear.bias is missing", level=ERROR),
    # the LM head's forms
    trap(makers.medusa_shared, "version", 'lacks "version": "2"', version=None),
    trap(makers.medusa_v1, "version", "remove the version", version="2"),
    trap(makers.medusa_vllm, "lm_head_shared", "add it", drop=("lm_heads.1.weight", "lm_heads.2.weight")),
    trap(makers.medusa_vllm, "lm_head_missing", "--to medusa_vllm", drop=tuple(f"lm_heads.{i}.weight" for i in range(3))),
    trap(makers.medusa_vllm, "token_map", "truncated_vocab_size", more={"token_map": makers.draft_ids()}),
    trap(makers.medusa_vllm, "token_map", "no token_map to name those tokens", truncated_vocab_size=DRAFT, level=ERROR),
    # biases
    trap(makers.medusa_vllm, "fc_bias_dropped", "medusa_fc_bias: true", medusa_fc_bias=None),
    trap(makers.medusa_vllm, "fc_bias_missing", "set it to false", drop=tuple(f"blocks.{i}.layers.0.bias" for i in range(3))),
    trap(lost_bias, "fc_bias_missing", "has no bias, which means true"),
    trap(unused_bias, "fc_bias_unused", "set bias: true"),
    trap(makers.eagle, "fc_bias_vllm", "vLLM's EAGLE layer has no fc bias"),
    trap(makers.eagle, "qkv_bias_unset", "add it", more={f"layers.0.self_attn.{p}_proj.bias": make(64 if p == "q" else 32) for p in "qkv"}),
    trap(makers.eagle3, "fc_bias_unused", "which EAGLE-3 does not have", more={"fc.bias": make(H)}),
    # the draft vocabulary
    trap(makers.eagle3, "d2t_absolute", "subtract arange(len(d2t))", more=ABSOLUTE),
    trap(makers.eagle3, "d2t_absolute", "rises at every entry", more={"d2t": torch.arange(DRAFT)}, drop=("t2d",)),
    trap(makers.eagle3, "t2d_disagrees", "write t2d again", more=T2D_OTHER),
    trap(makers.eagle3, "draft_vocabulary", "no d2t, so its columns cannot be named", drop=("d2t", "t2d"), level=ERROR),
    trap(makers.eagle3, "draft_vocabulary", "neither as offsets nor as ids", more={"d2t": torch.full((DRAFT,), V)}, level=ERROR),
    trap(makers.eagle3, "vocabulary_mismatch", "draft_vocab_size = 32000", draft_vocab_size=32000, level=ERROR),
    trap(makers.eagle3, "vocabulary_mismatch", "t2d has shape [320], but config.json says 400", vocab_size=400, level=ERROR),
    # vocabulary and width against the target
    trap(makers.medusa_v1, "vocabulary_mismatch", "Its LM matrices have 320 tokens, the target tiny has 500", target=True, level=ERROR),
    trap(makers.hydra, "vocabulary_mismatch", "another tokenizer", target=True, level=ERROR),
    trap(makers.eagle, "vocabulary_mismatch", "another tokenizer", target=True, level=ERROR),
    trap(makers.eagle3, "vocabulary_mismatch", "another tokenizer", target=True, level=ERROR),
    trap(makers.medusa_vllm, "vocabulary_mismatch", "The LM matrix has 320 rows", vocab_size=400, level=ERROR),
    trap(makers.eagle, "vocabulary_mismatch", "of different models", vocab_size=400, level=ERROR),
    trap(makers.speculators, "hidden_mismatch", "states of width 64, the target tiny gives 128", target=True, level=ERROR),
    # rotary base
    trap(makers.eagle3, "rope_base_mismatch", "base 10000, the target with 50000", target=True),
    trap(makers.eagle3, "rope_base_unset", "no rotary base, so 10000 applies, while the target rotates with 50000", rope_theta=None, target=True),
    trap(makers.eagle, "rope_base_unset", "add rope_theta", rope_theta=None),
    trap(makers.eagle3, "rope_base_conflict", "two rotary bases", rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    trap(makers.eagle3, "rope_scaling", "'yarn'", rope_scaling={"rope_type": "yarn", "factor": 4.0}, level=ERROR),
    # EAGLE-3's flags and taps
    trap(residual_unsaid, "norm_before_residual_unset", "vLLM takes true, the speculators library"),
    trap(makers.eagle3, "wrong_taps", "not a multiple of the state width 64", more={"fc.weight": make(H, 150)}, level=ERROR),
    trap(makers.eagle3, "wrong_taps", "names 2 layers to read", eagle_aux_hidden_state_layer_ids=[1, 2], level=ERROR),
    trap(makers.eagle3, "wrong_taps", "a layer twice", eagle_aux_hidden_state_layer_ids=[1, 1, 2], level=ERROR),
    trap(makers.eagle3, "wrong_taps", "expected a list", eagle_aux_hidden_state_layer_ids="1,2,3", level=ERROR),
    trap(makers.eagle3, "wrong_taps", "layers 0 to 7", eagle_aux_hidden_state_layer_ids=[2, 16, 29], target=True, level=ERROR),
    trap(makers.eagle3, "wrong_taps", "name the layers", more={"fc.weight": make(H, 4 * H)}, level=ERROR),
    trap(makers.eagle3, "taps_nested", "eagle_aux_hidden_state_layer_ids: [2, 4, 6]", eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}),
    trap(makers.eagle3, "taps_off_by_one", "write [2, 4, 5]", eagle_aux_hidden_state_layer_ids=[1, 3, 4], target=True),
    trap(makers.eagle3, "embedding_missing", "fetch the full checkpoint", more={"fc.weight": make(H, 3 * 128)}, target_hidden_size=128, level=ERROR),
    # parts that do not belong
    trap(makers.eagle, "extra_norm", "layers.0.input_layernorm.weight", more={"layers.0.input_layernorm.weight": make.norm()}),
    trap(makers.eagle, "extra_lm_head", "remove it", more={"lm_head.weight": make(V, H)}),
    trap(makers.eagle, "layers", "num_hidden_layers = 2", num_hidden_layers=2, level=ERROR),
    trap(makers.eagle3, "layers", "num_hidden_layers = 2", num_hidden_layers=2, level=ERROR),
    trap(makers.eagle3, "architecture", "norms its queries", more={"midlayer.self_attn.q_norm.weight": make.norm(16)}, level=ERROR),
    trap(makers.eagle3, "architecture", "'gelu'", hidden_act="gelu", level=ERROR),
    trap(makers.eagle3, "unexpected_tensors", "mask_hidden", more={"mask_hidden": make(1, H)}),
    trap(makers.eagle3, "wrong_shapes", "not [64, 96]", more={"midlayer.mlp.down_proj.weight": make(H, 128)}, level=ERROR),
    trap(makers.eagle3, "missing_tensors", "midlayer.hidden_norm.weight is missing", drop=("midlayer.hidden_norm.weight",), level=ERROR),
    trap(other_arch, "architecture", "'eagle-attn'", level=ERROR),
    trap(makers.hydra, "architecture", "holds no prefix layer", hydra_head_arch="prefix-mlp"),
    trap(makers.hydra, "grounded", "correct config.json", grounded=True, grounded_heads=False),
    trap(short_prefix, "missing_tensors", "v_proj.weight is missing", target=True, level=ERROR),
    trap(prefix_hydra, "target_needed", "name the target"),
    trap(nan_weights, "not_finite", "o_proj.weight", level=ERROR),
    # what vLLM and the speculators library ask for
    trap(makers.speculators, "draft_length_unset", "speculative_tokens is not set", speculators_config=SERVING),
    trap(makers.speculators, "verifier_unset", "vLLM refuses", speculators_config=SERVING),
    trap(makers.speculators, "no_layer_config", "transformer_layer_config", transformer_layer_config=None, level=ERROR),
    trap(makers.speculators, "architecture", "'peagle'", speculators_model_type="peagle", level=ERROR),
    trap(midlayer_speculators, "layer_names", "rename them to layers.0.*"),
]


@pytest.fixture(scope="module")
def other_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with another vocabulary, width, depth and rotary base than the checkpoints here; same head counts."""
    config = makers.llama_config(hidden_size=128, num_hidden_layers=8, vocab_size=500, rope_theta=50000.0)
    tensors = {"model.embed_tokens.weight": makers.Maker(12)(500, 128)}
    return makers.save(tmp_path_factory.mktemp("targets") / "tiny", config, tensors)


def named(problems: tuple[Problem, ...], name: str) -> list[Problem]:
    return [problem for problem in problems if problem.name == name]


@pytest.mark.parametrize("case", TRAPS)
def test_trap(case: Trap, tmp_path: Path, other_target: Path) -> None:
    folder = case.maker(tmp_path / "bad", **case.arguments)
    found = inspect(folder, other_target if case.target else None)
    matching = [problem for problem in named(found.problems, case.problem) if case.words in problem.text]
    assert matching, [(problem.name, problem.text) for problem in found.problems]
    assert matching[0].level == case.level
    assert matching[0].text.count(". ") == 0, "one sentence"
    if case.level == ERROR:
        assert not found.usable
        with pytest.raises(BadFile):
            load(folder, other_target if case.target else None)


@pytest.mark.parametrize("name", makers.ALL)
def test_a_good_checkpoint_has_no_problems(name: str, tmp_path: Path) -> None:
    found = inspect(makers.ALL[name](tmp_path))
    assert {problem.name for problem in found.problems} <= {"fc_bias_vllm"}
    assert found.usable
    assert found.format == name
    assert found.title
    assert found.sizes
    json.dumps(found.to_json())


@pytest.mark.parametrize("name", ["medusa_v1", "medusa_shared", "medusa_full", "hydra", "eagle", "eagle3", "speculators"])
def test_a_good_checkpoint_fits_its_target(name: str, tmp_path: Path, tiny_folder: Path) -> None:
    found = inspect(makers.ALL[name](tmp_path), tiny_folder)
    assert {problem.name for problem in found.problems} <= {"fc_bias_vllm", "embedding_differs"}
    assert found.usable


def test_an_absolute_d2t_is_read_as_what_it_is(tmp_path: Path) -> None:
    head = load(makers.eagle3(tmp_path, more=ABSOLUTE))
    assert torch.equal(head.vocabulary, makers.draft_ids())
    assert any("subtract arange" in note for note in head.notes)


def test_embeddings_of_another_model_are_noticed(tmp_path: Path, tiny_folder: Path) -> None:
    table = load_file(tiny_folder / "model.safetensors")["model.embed_tokens.weight"]
    right, wrong = (
        inspect(makers.eagle(tmp_path / "right", more={"embed_tokens.weight": table.half()}), tiny_folder),
        inspect(makers.eagle(tmp_path / "wrong"), tiny_folder),
    )
    assert not named(right.problems, "embedding_differs")
    assert "measured again" in named(wrong.problems, "embedding_differs")[0].text


def own(folder: Path, fingerprint: Fingerprint, vocabulary: torch.Tensor | None = None) -> Path:
    sizes = MedusaSizes(H, 2, 1, DRAFT)
    save_head(folder, HeadConfig("medusa", sizes.to_json(), fingerprint), MedusaHeads(sizes), makers.draft_ids() if vocabulary is None else vocabulary)
    return folder


def test_fingerprint_of_our_own_heads(tmp_path: Path, tiny_folder: Path) -> None:
    from specviz.checkpoints._target import open_target

    mine = open_target(tiny_folder).fingerprint
    assert inspect(own(tmp_path / "right", mine), tiny_folder).problems == ()
    stale = named(inspect(own(tmp_path / "stale", Fingerprint("0123456789abcdef")), tiny_folder).problems, "fingerprint_mismatch")
    assert "0123456789abcdef" in stale[0].text
    assert "train it again" in stale[0].text
    assert named(inspect(own(tmp_path / "unknown", Fingerprint("unknown"))).problems, "fingerprint_unknown")


def test_damage_to_our_own_heads(tmp_path: Path, tiny_folder: Path) -> None:
    twice = inspect(own(tmp_path / "twice", Fingerprint("x"), torch.zeros(DRAFT)))
    assert named(twice.problems, "draft_vocabulary")
    assert not twice.usable
    beyond = inspect(own(tmp_path / "beyond", Fingerprint("x"), torch.arange(DRAFT) + V), tiny_folder)
    assert named(beyond.problems, "vocabulary_mismatch")
    folder = own(tmp_path / "sizes", Fingerprint("x"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"sizes": config["sizes"] | {"heads": 3}}))
    assert named(inspect(folder).problems, "missing_tensors")
    (folder / "config.json").write_text(json.dumps(config | {"sizes": {"width": 3}}))
    assert "are not those of a medusa head" in inspect(folder).problems[0].text
    (folder / "config.json").write_text(json.dumps(config | {"method": "oracle"}))
    assert "does not know" in inspect(folder).problems[0].text


def test_fingerprint_travels_with_what_is_written(tmp_path: Path, tiny_folder: Path, other_target: Path) -> None:
    from specviz.checkpoints._target import open_target
    from specviz.checkpoints.conversion import convert

    made = convert(own(tmp_path / "ours", open_target(tiny_folder).fingerprint), "medusa_shared", tmp_path / "there", tiny_folder)
    assert not named(inspect(made.folder, tiny_folder).problems, "fingerprint_mismatch")
    assert named(inspect(made.folder, other_target).problems, "fingerprint_mismatch")


def cut(file: Path, share: float = 0.5) -> None:
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
@pytest.mark.parametrize(("maker", "file"), [(makers.medusa_shared, "medusa_lm_head.safetensors"), (makers.medusa_v1, "medusa_lm_head.pt")])
def test_truncated_files_are_said_so(maker: Callable[..., Path], file: str, share: float, tmp_path: Path) -> None:
    folder = maker(tmp_path)
    cut(folder / file, share)
    found = inspect(folder)
    assert not found.usable
    assert "truncated" in found.problems[0].text
    assert "etch it again" in found.problems[0].text
    with pytest.raises(BadFile, match="truncated"):
        load(folder)


def test_a_missing_shard_is_said_so(tmp_path: Path) -> None:
    folder = makers.medusa_full(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in inspect(folder).problems[0].text


class Evil:
    """What a hostile .pt would hold: unpickling it runs a command."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_that_would_run_code_are_refused(zipped: bool, tmp_path: Path) -> None:
    mark, folder = tmp_path / "ran", makers.medusa_v1(tmp_path / "heads")
    if zipped:
        torch.save({"0.0.linear.weight": Evil(mark)}, folder / "medusa_lm_head.pt")
    else:
        (folder / "medusa_lm_head.pt").write_bytes(pickle.dumps({"0.0.linear.weight": Evil(mark)}))
    found = inspect(folder)
    assert not found.usable
    assert not mark.exists()
    assert "refused" in found.problems[0].text
    with pytest.raises(BadFile):
        load(folder)
    assert not mark.exists()


def test_old_style_pickles_of_tensors_are_read(tmp_path: Path) -> None:
    folder = makers.medusa_v1(tmp_path)
    tensors = torch.load(folder / "medusa_lm_head.pt", weights_only=True)
    torch.save(tensors, folder / "medusa_lm_head.pt", _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(folder / "medusa_lm_head.pt")
    assert inspect(folder).usable
    cut(folder / "medusa_lm_head.pt")
    assert not inspect(folder).usable


def test_a_state_dict_inside_other_things_is_refused(tmp_path: Path) -> None:
    folder = makers.medusa_v1(tmp_path)
    torch.save({"step": 3, "model": {"0.0.linear.weight": make(H, H)}}, folder / "medusa_lm_head.pt")
    assert "not a state dict" in inspect(folder).problems[0].text


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "sub/part.safetensors", "model.py"])
def test_an_index_cannot_name_files_outside_its_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "heads"
    folder.mkdir()
    save_file({"medusa_head.0.0.linear.weight": make(H, H)}, tmp_path / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"medusa_head.0.0.linear.weight": name}}))
    found = inspect(folder)
    assert not found.usable
    assert "refused" in found.problems[0].text


def test_oversized_json_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.checkpoints import _files

    monkeypatch.setattr(_files, "MAX_JSON", 10)
    assert "more than 10" in inspect(makers.eagle(tmp_path)).problems[0].text


def test_oversized_tensors_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.checkpoints import _files

    monkeypatch.setattr(_files, "MAX_TENSOR_BYTES", 100)
    found = inspect(makers.eagle(tmp_path, name="model.safetensors"))
    assert not found.usable
    assert "No draft head is that large" in found.problems[-1].text
