"""Operations counted from shapes, against the published counts and against torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from prol.backbones import ViT, open_backbone
from prol.bench.arithmetic import Shape, backward, forward, work_of
from prol.methods.closed_form.ncm import NCM
from prol.methods.prol.learner import PROL

VIT_BASE = Shape(tokens=197, width=768, depth=12, hidden=3072, patch=768)


def test_shapes_are_read_off_the_network() -> None:
    assert Shape.of(open_backbone("vit_base_patch16_224@random", shapes_only=True)) == VIT_BASE


@pytest.mark.parametrize(
    ("counted", "gflop"),
    [
        (forward(VIT_BASE), 32.7),
        (forward(VIT_BASE, 5, 5, embedding=False, first_map=False), 31.8),
        (backward(VIT_BASE, 5, 5, first_map=False), 33.8),
    ],
    ids=["query", "prompted", "backward"],
)
def test_vit_base_takes_what_was_counted_by_hand(counted: int, gflop: float) -> None:
    assert counted / 1e9 == pytest.approx(gflop, rel=0.02)


def test_a_step_of_prol_with_frozen_norms_takes_98_gflop() -> None:
    vit = open_backbone("vit_base_patch16_224@random", shapes_only=True)
    frozen = work_of("prol", PROL.read_options({"tune_norms": False}), vit)
    tuned = work_of("prol", PROL.read_options({}), vit)
    assert frozen is not None
    assert tuned is not None
    assert frozen.train / 1e9 == pytest.approx(98, rel=0.02)
    assert frozen.predict / 1e9 == pytest.approx(32.7 + 31.8, rel=0.02)
    assert frozen.train < tuned.train < 1.03 * frozen.train


def test_methods_whose_passes_are_not_known_claim_nothing(tiny: ViT) -> None:
    assert work_of("ncm", NCM.read_options({}), tiny) is None
    assert work_of("prol", PROL.read_options({"ablation": "norms_only"}), tiny) is None


def test_the_count_is_what_torch_counts(tiny: ViT) -> None:
    shape, images = Shape.of(tiny), torch.zeros(2, 3, 16, 16, dtype=tiny.dtype)
    prefixes = {
        block: tuple(torch.zeros(2, tiny.heads, 5, 16, dtype=tiny.dtype, requires_grad=True) for _ in "kv")
        for block in range(3)
    }
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as query, torch.no_grad():
            tokens = tiny.embed(images)
            tiny.encode(tokens)
        assert query.get_total_flops() == 2 * forward(shape)
        with FlopCounterMode(display=False) as prompted:
            feature = tiny.encode(tokens, prefixes).feature
        assert prompted.get_total_flops() == 2 * forward(shape, 5, 3, embedding=False)
        with FlopCounterMode(display=False) as back:
            torch.autograd.grad(feature.sum(), [part for pair in prefixes.values() for part in pair])
    # Plain products keep attention's weights; and nothing goes further back than the first block's prefixes.
    assert back.get_total_flops() == pytest.approx(2 * backward(shape, 5, 3, first_map=False), rel=0.1)
