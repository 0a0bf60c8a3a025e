"""Streaming LDA against LDA on all features at once."""

from __future__ import annotations

import pytest
import torch

import prol
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.slda import SLDA
from prol.methods.closed_form.solvers import lda

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def make(vit: ViT, **options: object) -> SLDA:
    learner = prol.create("slda", vit, **options)
    assert isinstance(learner, SLDA)
    return learner


def features(vit: ViT, images: object) -> torch.Tensor:
    how = vit.preprocessing
    return vit.features(evaluation_input(vit.read(images), how, torch.device("cpu"), torch.float64))


@pytest.mark.parametrize("shrinkage", ["oas", 0.2])
def test_scores_are_those_of_lda_on_all_features(tiny: ViT, shrinkage: float | str) -> None:
    learner = make(tiny, shrinkage=shrinkage)
    for start in range(0, 12, 5):
        learner.learn(IMAGES[start : start + 5], KINDS[start : start + 5])
    totals = Totals.of(features(tiny, IMAGES), torch.tensor(KINDS), 4)
    weight, bias = lda(totals, None if shrinkage == "oas" else float(shrinkage))
    expected = features(tiny, TEST) @ weight.T + bias
    torch.testing.assert_close(learner.predict(TEST), expected.float(), rtol=1e-5, atol=1e-5)


def test_it_recognises_the_classes_after_the_first_chunk_and_later(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES[4:8], KINDS[4:8])
    rows = learner.predict(TEST).argmax(1).tolist()
    assert [learner.classes[row] for row in rows] == [0, 1, 2, 3]
    learner.learn(IMAGES, KINDS)
    rows = learner.predict(TEST).argmax(1).tolist()
    assert [learner.classes[row] for row in rows] == [0, 1, 2, 3]


def test_an_announced_class_of_which_nothing_was_seen_is_never_predicted(tiny: ViT) -> None:
    learner = make(tiny)
    learner.boundary(["ghost", 0, "spirit", 1])
    assert (learner.predict(TEST) == -torch.inf).all()
    learner.learn(pictures([0, 1, 0]), [0, 1, 0])
    scores = learner.predict(pictures(list(range(20))))
    assert set(scores.argmax(1).tolist()) <= {1, 3}
    assert (scores[:, [0, 2]] == -torch.inf).all()


def test_it_stores_moments_and_trains_nothing(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(IMAGES, KINDS)
    found, width = learner.footprint(), tiny.width
    numbers = width * width + 4 * (width + 1)
    assert found.statistics_stored == Amount(numbers, 8 * numbers)
    assert found.parameters_stored == Amount(4 * (width + 1), 8 * 4 * (width + 1))
    assert found.trained_now == found.samples_stored == Amount(0, 0)


@pytest.mark.parametrize("shrinkage", [-0.1, 1.5])
def test_a_shrinkage_that_is_no_share_is_refused(tiny: ViT, shrinkage: float) -> None:
    with pytest.raises(ValueError, match=f"shrinkage must be from 0 to 1, or oas, got {shrinkage}"):
        make(tiny, shrinkage=shrinkage)
