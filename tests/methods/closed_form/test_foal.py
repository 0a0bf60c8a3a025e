"""F-OAL: its features, its recursion against ridge regression, and what it keeps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ResNet, ViT, evaluation_input
from prol.learner import Amount
from prol.methods.closed_form.foal import FOAL
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import ridge

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def make(vit: ViT, seed: int = 0, **options: Any) -> FOAL:
    learner = prol.create("foal", vit, seed=seed, **({"features": 30} | options))
    assert isinstance(learner, FOAL)
    return learner


def embedded(vit: ViT, learner: FOAL, images: object) -> Tensor:
    """Sigmoid features, from the class token after every block."""
    inputs = evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64)
    taps = vit.encode(vit.embed(inputs), taps=range(vit.depth)).class_taps
    assert len(taps) == vit.depth
    return torch.sigmoid(vit.final_norm(torch.stack(taps).mean(0)) @ learner.layer["map"])


def test_after_every_chunk_the_weights_are_the_ridge_solution(tiny: ViT) -> None:
    learner = make(tiny, ridge=0.1)
    for start, end in pairwise([0, 1, 5, 6, 12]):
        learner.learn(IMAGES[start:end], KINDS[start:end])
        classes = len(learner.classes)
        joint = Totals.of(embedded(tiny, learner, IMAGES[:end]), torch.tensor(KINDS[:end]), classes)
        torch.testing.assert_close(learner.weight.rows, ridge(joint, 0.1), rtol=0, atol=1e-8)
        expected = embedded(tiny, learner, TEST) @ ridge(joint, 0.1).T
        torch.testing.assert_close(learner.predict(TEST), expected.float(), rtol=0, atol=1e-6)


def test_it_recognises_the_classes(tiny: ViT) -> None:
    learner = make(tiny, ridge=1e-3)
    learner.learn(IMAGES, KINDS)
    assert learner.predict(TEST).argmax(1).tolist() == [0, 1, 2, 3]


def test_the_random_map_is_small_and_without_bias(tiny: ViT) -> None:
    found = make(tiny).layer["map"]
    assert found.shape == (tiny.width, 30)
    assert found.abs().max() <= tiny.width**-0.5
    assert found.abs().max() > 0.9 * tiny.width**-0.5


def test_an_announced_class_of_which_nothing_was_seen_is_never_predicted(tiny: ViT) -> None:
    learner = make(tiny)
    learner.boundary(["ghost", 0])
    learner.learn(pictures([0, 0]), [0, 0])
    assert (learner.predict(TEST)[:, 0] == -torch.inf).all()
    assert learner.predict(TEST)[:, 1].isfinite().all()


def test_a_state_brings_its_random_map(tiny: ViT) -> None:
    learner, twin = make(tiny, seed=3), make(tiny, seed=8)
    learner.learn(IMAGES, KINDS)
    assert tensors(learner).keys() == {"inverse", "weight", "counts", "random"}
    twin.load_state(*learner.state())
    assert torch.equal(twin.predict(TEST), learner.predict(TEST))


def test_it_stores_an_inverse_and_no_sample(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES, KINDS)
    found = learner.footprint()
    assert found.statistics_stored == Amount(904, 904 * 8)
    assert found.parameters_stored == Amount(30 * (tiny.width + 4), 30 * (tiny.width + 4) * 8)
    assert found.trained_now == found.samples_stored == Amount(0, 0)


def test_of_a_backbone_without_class_tokens_it_takes_the_pooled_feature(small_resnet: ResNet) -> None:
    images = IMAGES[:2]
    b = small_resnet
    inputs = evaluation_input(b.read(images), b.preprocessing, b.device, b.dtype)
    torch.testing.assert_close(prol.create("foal", b).encode_images(images), b.features(inputs))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"features": 0}, "features must be at least 1, got 0"), ({"ridge": 0}, "ridge must be a finite number above 0")],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FOAL.read_options(options)
