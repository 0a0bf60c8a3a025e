"""KLDA against its formulas on the random features of all images at once."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.methods.closed_form.klda import KLDA

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def taught(vit: ViT, **options: object) -> KLDA:
    learner = prol.create("klda", vit, features=50, gamma=0.02, **options)
    assert isinstance(learner, KLDA)
    for start in range(0, 12, 5):
        learner.learn(IMAGES[start : start + 5], KINDS[start : start + 5])
    return learner


def random_features(learner: KLDA, images: object, member: int) -> Tensor:
    vit = learner.backbone
    h = vit.features(evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64))
    drawn = h @ (math.sqrt(2 * 0.02) * learner.layer["weight"][member]) + learner.layer["phase"][member]
    return math.sqrt(2 / 50) * drawn.cos()


def distances(learner: KLDA, member: int, ridge: float) -> Tensor:
    """Squared Mahalanobis distances `[B, C]` by the scatter of samples about the means of their classes."""
    x, rows = random_features(learner, IMAGES, member), torch.tensor(KINDS)
    means = torch.stack([x[rows == c].mean(0) for c in range(4)])
    apart = x - means[rows]
    inverse = torch.linalg.inv(apart.T @ apart + ridge * torch.eye(50).double())
    off = random_features(learner, TEST, member).unsqueeze(1) - means
    return torch.einsum("bci,ij,bcj->bc", off, inverse, off)


@pytest.mark.parametrize("ridge", [0.1, 1e-3])
def test_scores_are_mahalanobis_distances_to_class_means(tiny: ViT, ridge: float) -> None:
    learner = taught(tiny, ridge=ridge)
    scores, expected = learner.predict(TEST), -len(KINDS) / 2 * distances(learner, 0, ridge)
    torch.testing.assert_close(scores - scores[:, :1], (expected - expected[:, :1]).float(), rtol=1e-4, atol=1e-4)
    assert scores.argmax(1).tolist() == [0, 1, 2, 3]


def test_an_ensemble_averages_probabilities_over_other_random_features(tiny: ViT) -> None:
    learner = taught(tiny, ensemble=3)
    by_member = [(-len(KINDS) / 2 * distances(learner, member, 0.1)).softmax(1) for member in range(3)]
    expected = torch.stack(by_member).mean(0)
    torch.testing.assert_close(learner.predict(TEST).exp(), expected.float(), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(by_member[0], by_member[1])
    learner.boundary(["nothing yet"])
    scores = learner.predict(TEST)
    assert (scores[:, 4] == -torch.inf).all()
    assert scores[:, :4].isfinite().all()


def test_an_ensemble_of_announced_classes_alone_predicts_none_of_them(tiny: ViT) -> None:
    learner = prol.create("klda", tiny, features=10, ensemble=2)
    learner.boundary([0, 1])
    assert (learner.predict(TEST) == -torch.inf).all()


def test_the_kernel_is_approximated(tiny: ViT) -> None:
    learner = prol.create("klda", tiny, features=5_000, gamma=0.02)
    assert isinstance(learner, KLDA)
    h = torch.randn(6, tiny.width, generator=torch.Generator().manual_seed(0)).double()
    z = learner.embed(h, 0)
    torch.testing.assert_close(z @ z.T, (-0.02 * torch.cdist(h, h).square()).exp(), rtol=0, atol=0.05)
