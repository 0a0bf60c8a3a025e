"""LR-RGDA against Gaussians with covariances written out; the sketch against the directions of all samples."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import prol
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.methods.closed_form.lr_rgda import LRRGDA, leading_rows

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2, 0, 0, 1]
ROWS = torch.tensor(KINDS)
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def make(vit: ViT, **options: object) -> LRRGDA:
    learner = prol.create("lr_rgda", vit, **options)
    assert isinstance(learner, LRRGDA)
    return learner


def taught(vit: ViT, chunk: int = 4, **options: object) -> LRRGDA:
    learner = make(vit, **options)
    learner.boundary([0, 1, 2, 3])
    for start in range(0, len(KINDS), chunk):
        learner.learn(IMAGES[start : start + chunk], KINDS[start : start + chunk])
    return learner


def features(vit: ViT, images: object) -> Tensor:
    return vit.features(evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64))


def gaussian_scores(x: Tensor, test: Tensor, rank: int, weights: tuple[float, float, float]) -> Tensor:
    """Log densities `[B, C]` of N(m_c, α₁S_c + α₂Σ + α₃I), S_c the leading part of the class covariance."""
    means = torch.stack([x[c == ROWS].mean(0) for c in range(4)])
    apart = x - means[ROWS]
    shared, found = apart.T @ apart / len(x), []
    for c in range(4):
        own = apart[c == ROWS]
        values, vectors = torch.linalg.eigh(own.T @ own / len(own))
        own = (vectors * values)[:, -rank:] @ vectors[:, -rank:].T
        covariance = weights[0] * own + weights[1] * shared + weights[2] * torch.eye(x.shape[1]).double()
        found.append(MultivariateNormal(means[c], covariance).log_prob(test))
    return torch.stack(found, dim=1)


def assert_same_but_for_a_constant(scores: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(scores - scores[:, :1], (expected - expected[:, :1]).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 4, 15])
def test_with_no_more_samples_than_directions_it_is_the_exact_gaussian(tiny: ViT, chunk: int) -> None:
    learner = taught(tiny, chunk, own=0.7, shared=1.5, identity=0.2)
    x, test = features(tiny, IMAGES), features(tiny, TEST)
    assert_same_but_for_a_constant(learner.predict(TEST), gaussian_scores(x, test, 32, (0.7, 1.5, 0.2)))
    assert learner.predict(TEST).argmax(1).tolist() == [0, 1, 2, 3]


def test_in_one_chunk_the_sketch_has_the_leading_directions_of_each_class(tiny: ViT) -> None:
    learner = taught(tiny, 15, rank=2, own=5.0, shared=0.5, identity=0.01)
    x, test = features(tiny, IMAGES), features(tiny, TEST)
    assert_same_but_for_a_constant(learner.predict(TEST), gaussian_scores(x, test, 2, (5.0, 0.5, 0.01)))
    assert learner.sketch.rows.shape == (4, 2, tiny.width)


def test_classes_without_a_covariance_of_their_own_share_one(tiny: ViT) -> None:
    """Then scores are those of linear discriminant analysis."""
    learner = taught(tiny, own=0.0, shared=1.0, identity=0.3)
    x, test = features(tiny, IMAGES), features(tiny, TEST)
    assert_same_but_for_a_constant(learner.predict(TEST), gaussian_scores(x, test, 1, (0.0, 1.0, 0.3)))


def test_many_small_chunks_find_strong_directions_nearly() -> None:
    random = torch.Generator().manual_seed(0)
    strong = torch.linalg.qr(torch.randn(30, 3, generator=random).double())[0]
    x = 10 * torch.randn(400, 3, generator=random).double() @ strong.T + torch.randn(400, 30, generator=random).double()
    rows = torch.zeros(1, 5, 30).double()
    for part in torch.split(x, 7):
        rows = leading_rows(torch.cat([rows, part.unsqueeze(0)], dim=1), 5)
    assert rows.shape == (1, 5, 30)
    products, exact = rows[0].T @ rows[0], x.T @ x
    along = strong.T @ (exact - products) @ strong
    assert along.abs().max() < 0.01 * (strong.T @ exact @ strong).diagonal().min()
    assert torch.linalg.eigvalsh(exact - products).min() > -1e-6  # nothing is counted twice


def test_merged_classes_have_the_sketch_of_both(tiny: ViT) -> None:
    learner, together = make(tiny), make(tiny)
    names = ["a", "b", "c", "d"]
    learner.learn(IMAGES, [names[kind] for kind in KINDS])
    together.learn(IMAGES, [names[kind % 3] for kind in KINDS])
    assert not learner.merge_classes("d", "a").exact
    torch.testing.assert_close(learner.predict(TEST), together.predict(TEST), rtol=1e-4, atol=1e-4)


def test_a_chunk_of_features_that_are_not_finite_changes_nothing(tiny: ViT) -> None:
    learner = taught(tiny)
    before = learner.state()[0]
    with pytest.raises(ValueError, match="not finite"):
        learner.update(torch.full((2, tiny.width), torch.nan), torch.tensor([0, 1]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state()[0].items())
