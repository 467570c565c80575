"""What was converted drafts the same trees: our heads there and back, and official heads in our drafters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from checkpoints import makers
from checkpoints.own import own_head

from specviz.build import build_drafter, build_rule, parse_spec
from specviz.checkpoints._target import open_target
from specviz.checkpoints.conversion import convert
from specviz.decode import Request, decode
from specviz.events import Drafted, Finished
from specviz.sampling import Sampling
from specviz.sources import Fingerprint
from specviz.target import Target


@pytest.fixture
def fingerprint(tiny_folder: Path) -> Fingerprint:
    return open_target(tiny_folder).fingerprint


@pytest.fixture(scope="module")
def loaded(tiny_folder: Path) -> Target:
    return Target.load(str(tiny_folder), device="cpu")


def run(target: Target, method: str, checkpoint: Path) -> tuple[list[tuple], tuple[int, ...]]:
    """Returns (tokens and parents of every drafted tree, the text) of a greedy run of 12 tokens."""
    shape = "medusa_63" if method == "medusa" else "dynamic"
    drafter = build_drafter(target, parse_spec(f"{method}@{shape}:checkpoint={checkpoint}"))
    request = Request(tuple(target.encode("to be or not")), "to be or not")
    events = list(decode(target, drafter, build_rule("greedy"), [request], sampling=Sampling(), max_new_tokens=12))
    trees = [(tuple(event.tokens), tuple(event.parents)) for event in events if isinstance(event, Drafted)]
    text = next(tuple(event.tokens) for event in events if isinstance(event, Finished))
    return trees, text


@pytest.mark.parametrize(
    ("method", "to"),
    [
        ("medusa", "medusa_v1"),
        ("medusa", "medusa_shared"),
        ("medusa", "medusa_vllm"),
        ("eagle", "eagle"),
        ("eagle3", "eagle3"),
        ("eagle3", "speculators"),
        ("hydra", "hydra"),
    ],
)
def test_there_and_back_drafts_the_same_trees(method: str, to: str, tmp_path: Path, tiny_folder: Path, loaded: Target, fingerprint: Fingerprint) -> None:
    ours = own_head(tmp_path / "ours", method, fingerprint)
    there = convert(ours, to, tmp_path / "there", tiny_folder)
    back = convert(there.folder, "native", tmp_path / "back", tiny_folder)
    first, last = run(loaded, method, ours), run(loaded, method, back.folder)
    assert len(first[0]) > 3
    assert all(len(tokens) > 5 for tokens, _ in first[0][:2])
    assert last == first


def test_official_medusa_heads_draft_with_their_own_matrices(tmp_path: Path, tiny_folder: Path, loaded: Target) -> None:
    """The first drafted level is the best ten of head 1, computed here from the official tensors."""
    source = makers.medusa_v1(tmp_path / "official")
    native = convert(source, "native", tmp_path / "native", tiny_folder)
    raw = {name: tensor.float() for name, tensor in torch.load(source / "medusa_lm_head.pt", weights_only=True).items()}
    trees, text = run(loaded, "medusa", native.folder)
    ids = torch.tensor([list(loaded.encode("to be or not"))])
    with torch.inference_mode():
        state = loaded.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
    x = state + torch.nn.functional.silu(state @ raw["0.0.linear.weight"].T + raw["0.0.linear.bias"])
    expected = (x @ raw["0.1.weight"].T).topk(10).indices.tolist()
    tokens, parents = trees[0]
    assert [token for token, parent in zip(tokens, parents, strict=True) if parent == 0] == expected
    assert text == run(loaded, "medusa", convert(makers.medusa_shared(tmp_path / "shared"), "native", tmp_path / "other", tiny_folder).folder)[1], (
        "greedy text never depends on the draft"
    )


def test_official_eagle_heads_draft(tmp_path: Path, tiny_folder: Path, loaded: Target) -> None:
    native = convert(makers.eagle(tmp_path / "official"), "native", tmp_path / "native", tiny_folder)
    trees, text = run(loaded, "eagle", native.folder)
    assert len(text) == 12
    assert all(len(tokens) > 5 for tokens, _ in trees[:2])


def test_a_head_of_unknown_origin_is_said_to_be_so(tmp_path: Path, loaded: Target) -> None:
    native = convert(makers.eagle(tmp_path / "official"), "native", tmp_path / "native")
    with pytest.warns(UserWarning, match="unknown"):
        run(loaded, "eagle", native.folder)
