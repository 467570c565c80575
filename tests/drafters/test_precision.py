"""The draft's products may run in bfloat16: the tree may differ a little, the text never does."""

from __future__ import annotations

import pytest
import torch

from specviz import shapes
from specviz.build import build_rule
from specviz.decode import Request, decode
from specviz.drafters import heads
from specviz.drafters.eagle import Eagle
from specviz.drafters.eagle_module import EagleLayer, EagleSizes
from specviz.drafters.head_file import HeadConfig, save_head
from specviz.errors import BadInput
from specviz.packed import PackedLinear, packable
from specviz.registry import bind
from specviz.sampling import Sampling
from specviz.target import Target

DRAFT_VOCAB = torch.arange(2, 66) * 3


@pytest.fixture
def eagle(tiny_target, tmp_path):
    if (reason := packable(tiny_target.model)) is not None:
        pytest.skip(reason)
    torch.manual_seed(3)
    layer = EagleLayer(EagleSizes.of(tiny_target.text_config, len(DRAFT_VOCAB))).eval().requires_grad_(False)
    save_head(tmp_path, HeadConfig("eagle", layer.sizes.to_json(), tiny_target.fingerprint), layer, DRAFT_VOCAB)
    return lambda precision, target=tiny_target: Eagle(target, shape=bind(shapes, "dynamic", {"nodes": 9}), checkpoint=str(tmp_path), precision=precision)


def test_bfloat16_drafts_and_the_text_is_the_same(tiny_target, eagle, text_ids):
    texts = []
    for precision in ("float32", "bfloat16"):
        drafter = eagle(precision)
        assert drafter.describe()["precision"] == precision
        events = list(decode(tiny_target, drafter, build_rule("rejection"), [Request(tuple(text_ids(9)))], sampling=Sampling(0.8, seed=3), max_new_tokens=24))
        texts.append(events[-1].tokens)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("fast", "name"), [(True, "bfloat16"), (False, "float32")])
def test_fastest_asks_the_processor(eagle, monkeypatch, fast, name):
    monkeypatch.setattr(heads, "fast_bfloat16", lambda: fast)
    assert eagle("fastest").describe()["precision"] == name


def test_a_precision_that_the_target_cannot_have_is_refused(eagle, tiny_folder):
    target = Target.load(str(tiny_folder), device="cpu", dtype="bfloat16")
    with pytest.warns(UserWarning, match="another target"):
        assert eagle("fastest", target).describe()["precision"] == "bfloat16"
    with pytest.warns(UserWarning, match="another target"), pytest.raises(BadInput, match="precision='float32'"):
        eagle("float32", target)


def test_packed_bfloat16_is_near_the_plain_product():
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(64, 48), torch.randn(2, 5, 64)
    packed = PackedLinear(linear, keep_weight=False, dtype=torch.bfloat16)
    assert packed(x).dtype == torch.float32
    torch.testing.assert_close(packed(x), linear(x), atol=3e-2, rtol=3e-2)
