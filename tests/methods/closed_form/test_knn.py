"""Nearest neighbours against a loop over all stored images."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.learner import Learner

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3, 4, 5, 6, 7], seed=7)


def taught(vit: ViT, **options: object) -> Learner:
    learner = prol.create("knn", vit, **options)
    for start in range(0, 12, 5):
        learner.learn(IMAGES[start : start + 5], KINDS[start : start + 5])
    return learner


def cosines(vit: ViT) -> Tensor:
    x, test = (
        vit.features(evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64))
        for images in (IMAGES, TEST)
    )
    return F.cosine_similarity(test.unsqueeze(1), x, dim=2)


@pytest.mark.parametrize("k", [1, 3, 5, 99])
def test_the_most_frequent_class_among_the_nearest_wins_and_of_equals_the_nearer(tiny: ViT, k: int) -> None:
    predicted = taught(tiny, k=k).predict(TEST).argmax(1).tolist()
    for row, found in zip(cosines(tiny), predicted, strict=True):
        nearest = [KINDS[i] for i in row.argsort(descending=True).tolist()]
        votes = Counter(nearest[:k])
        assert found == max(votes, key=lambda kind: (votes[kind], -nearest.index(kind)))


def test_one_neighbour_is_the_nearest_image_of_all(tiny: ViT) -> None:
    nearest = [KINDS[i] for i in cosines(tiny).argmax(1).tolist()]
    assert taught(tiny, k=1).predict(TEST).argmax(1).tolist() == nearest
    assert nearest[:4] == [0, 1, 2, 3]


def test_votes_count_more_than_any_cosine_and_all_classes_are_ranked(tiny: ViT) -> None:
    scores = taught(tiny, k=3).predict(TEST)
    assert scores.isfinite().all()
    assert torch.equal((scores + 0.5).floor().clamp(min=0).sum(1), torch.full((8,), 3.0))


def test_an_announced_class_without_images_never_wins(tiny: ViT) -> None:
    learner = prol.create("knn", tiny)
    learner.boundary(["ghost", 0])
    assert (learner.predict(TEST) == -torch.inf).all()
    learner.learn(IMAGES[:1], [0])
    assert learner.predict(TEST)[:, 0].eq(-torch.inf).all()
    assert learner.predict(TEST)[:, 1].isfinite().all()
