"""Small PROL+ learners on the tiny ViT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from prol.methods.prol_plus.class_covariances import ClassCovariances
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.methods.prol_plus import learner as prol_plus
from prol.methods.prol_plus.learner import PROLPlus
from prol.state import State

SMALL = {"budget_mb": 1, "blocks": 1, "features": 20, "class_directions": 6}
WHOLE = {"budget_mb": 7, "class_directions": None}
"""Besides these: room for class covariances in all directions of one block."""
TASKS = ([0, 1, 2], [3, 4, 5])
CLASSES = TASKS[0] * 2


def begin_early(monkeypatch: pytest.MonkeyPatch, enough: int = 12, first_choice: int = 32) -> None:
    """Directions are fixed, and the shrinkage is chosen, after fewer samples than in earnest."""
    monkeypatch.setattr(prol_plus, "ENOUGH", enough)
    monkeypatch.setattr(prol_plus, "FIRST_CHOICE", first_choice)


def make(vit: ViT, seed: int = 0, **options: Any) -> PROLPlus:
    learner = prol.create("prol_plus", vit, seed=seed, **(SMALL | options))
    assert isinstance(learner, PROLPlus)
    return learner


def teach(learner: PROLPlus, steps: int = 4) -> PROLPlus:
    """Both tasks, announced, two images of each class in a step."""
    for classes in TASKS:
        learner.boundary(classes)
        for step in range(steps):
            learner.learn(pictures(classes * 2, seed=step), classes * 2)
    return learner


def learn(learner: PROLPlus, steps: int, classes: Sequence[int] = CLASSES, first: int = 0) -> PROLPlus:
    """So many chunks of these classes, numbered from `first` on."""
    for step in range(first, first + steps):
        learner.learn(pictures(classes, seed=step), list(classes))
    return learner


def predictions(learner: PROLPlus) -> list[Any]:
    """What it takes images of the kinds 0 to 5 for."""
    scores = learner.predict(pictures(list(range(6)), seed=7))
    return [learner.classes[row] for row in scores.argmax(1).tolist()]


def blocks_of(vit: ViT, images: object, taps: Sequence[int]) -> Tensor:
    """Block features as a network gives them."""
    inputs = evaluation_input(vit.read(images), vit.preprocessing, vit.device, vit.dtype)
    return vit.encode(vit.embed(inputs), taps=taps).interleaved().detach()


def covariances(
    width: int, chunks: list[tuple[Tensor, list[int]]], classes: int = 3, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Packed products of the given coordinates."""
    state = State()
    found = ClassCovariances(state, width, 10**9, dtype)
    state.add_classes(classes)
    for coordinates, rows in chunks:
        found.add(coordinates, torch.tensor(rows))
    return found.table.rows


def norms(learner: PROLPlus) -> dict[str, Tensor]:
    return {name: t for name, t in tensors(learner).items() if name.startswith("tuning/norm/")}


def expected_gains(own: list[Tensor], pooled: Tensor, shares: list[float], counts: list[int]) -> list[float]:
    """What a class may expect of its own covariance.

    For covariances A of classes with so many samples, which weigh so much in them, and P `[K, K]` of all.
    """
    width = len(pooled)
    zero = pooled.new_zeros(width)
    apart = [float(kl_divergence(MultivariateNormal(zero, a), MultivariateNormal(zero, pooled))) for a in own]
    rows = list(zip(apart, shares, counts, strict=True))
    differ = sum((4 * kl / a**2 - width**2 / n) * n * a**2 for kl, a, n in rows) / sum(n * a**2 for _, a, n in rows)
    differ = max(0.0, differ)
    return [max(0.0, a * differ / 2 - a**2 * (differ + width**2 / n) / 4) for _, a, n in rows]
