"""Small PROL+ learners on the tiny ViT, and what they should compute, written out in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.methods.prol_plus.learner import PROLPlus

Floats = NDArray[np.float64]
SMALL = {"budget_mb": 1, "blocks": 1, "features": 20}
TASKS = ([0, 1, 2], [3, 4, 5])
CLASSES = TASKS[0] * 2


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


@torch.no_grad()
def blocks_of(vit: ViT, images: object, blocks: int, pooled: bool = True) -> Tensor:
    """Features of the last blocks, as a network gives them, and its own feature behind them."""
    inputs = evaluation_input(vit.read(images), vit.preprocessing, vit.device, vit.dtype)
    found = vit.encode(vit.embed(inputs), taps=list(range(vit.depth - blocks, vit.depth)))
    return torch.cat([found.interleaved(), found.feature], dim=1) if pooled else found.interleaved()


def norms(learner: PROLPlus) -> dict[str, Tensor]:
    return {name: t for name, t in tensors(learner).items() if name.startswith("tuning/norm/")}


def prior(x: Floats, freedom: int, levels: Sequence[int]) -> Floats:
    """Prior variances: those of all samples, to which their mean is added as 5 samples more, by levels."""
    variances = x.var(axis=0)
    variances = (len(x) * variances + 5 * variances.mean()) / (len(x) + 5)
    found: Floats = variances * 1.75 ** (np.array(levels) * 1000 / (freedom + 1000))
    return found


def covariance(x: Floats, about: Floats, freedom: int, levels: Sequence[int], k: float) -> Floats:
    """That of samples about means, with a prior of k samples and that of all samples as t."""
    t, spread = 100 / (1 + freedom / 10), np.cov(x.T, bias=True)
    scatter = (x - about).T @ (x - about) + k * np.diag(prior(x, freedom, levels)) + t * spread
    found: Floats = scatter / (freedom + k + t)
    return found


def dense(x: Floats, rows: Sequence[int], levels: Sequence[int], k: float) -> tuple[Floats, Floats, Floats]:
    """The covariance within classes, the mean of their means, and their means less it."""
    of, classes = np.array(rows), sorted(set(rows))
    means = np.stack([x[of == row].mean(0) for row in classes])
    about = means[[classes.index(row) for row in rows]]
    return covariance(x, about, len(x) - len(classes), levels, k), means.mean(0), means - means.mean(0)


def dense_scores(x: Floats, rows: Sequence[int], probes: Floats, levels: Sequence[int], k: float) -> Floats:
    """(x - μ)ᵀΣ⁻¹m / √(mᵀΣ⁻¹m) of probes, from samples and the rows of their classes."""
    within, centre, means = dense(x, rows, levels, k)
    inverse = np.linalg.inv(within)
    found: Floats = (probes - centre) @ inverse @ means.T / np.sqrt(np.diag(means @ inverse @ means.T))
    return found


def dense_familiarity(x: Floats, rows: Sequence[int], probes: Floats, levels: Sequence[int], k: float) -> Floats:
    """cos a (M / d²)^¼ + 6 (d₀² - d_c²) / √(d² M)."""
    within, centre, means = dense(x, rows, levels, k)
    overall = covariance(x, x.mean(0), len(x) - len(means), levels, k)

    def square(y: Floats, matrix: Floats) -> Floats:
        found: Floats = (y @ np.linalg.inv(matrix) * y).sum(-1)
        return found

    away, width = probes - centre, probes.shape[1]
    d2, d02 = square(away, within), square(probes - x.mean(0), overall)
    cosines = dense_scores(x, rows, probes, levels, k) / np.sqrt(d2)[:, None]
    nearest = np.stack([square(away - mean, within) for mean in means], axis=1).min(1)
    found: Floats = cosines.max(1) * (width / d2) ** 0.25 + 6 * (d02 - nearest) / np.sqrt(d2 * width)
    return found


def blended(
    gauss: tuple[Floats, Floats], own: Floats, rows: Sequence[int], probes: Floats, handful: float = 20.0
) -> Floats:
    """Scores of the Gaussian at probes and at class means, with the cosine to class means of the `own` features."""
    classes = sorted(set(rows))
    means = np.stack([own[np.array(rows) == one].mean(0) for one in classes])

    def cosines(x: Floats) -> Floats:
        lengths = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(means, axis=1)
        return np.asarray(x @ means.T / lengths)

    def gap(scores: Floats) -> float:
        others = ~np.eye(len(scores), dtype=bool)
        return float(scores.diagonal().mean() - scores[others].mean())

    scores, at_means = gauss
    weight = 1 / (1 + (len(rows) / handful) ** 2)
    return np.asarray((1 - weight) * scores + weight * cosines(probes) * gap(at_means) / gap(cosines(means)))
