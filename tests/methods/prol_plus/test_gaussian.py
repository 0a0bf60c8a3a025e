"""PROL+'s classifier against its formulas, written out in numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from methods.prol_plus.small_prol_plus import dense, dense_familiarity, dense_scores
from prol.methods.closed_form.moments import ClassTotals, Totals
from prol.methods.closed_form.solvers import lda
from prol.methods.prol_plus import gaussian as gaussian_module
from prol.methods.prol_plus.gaussian import (
    Blend,
    Familiarity,
    Gaussian,
    Overall,
    prior_variances,
)

LEVELS = [0, 0, 0, 1, 1, 2, 2, 3]


def features(count: int, seed: int, classes: int = 3, width: int = 8) -> tuple[NDArray[np.float64], list[int]]:
    """Correlated features of any mean, and rows of classes that differ in their means."""
    random = np.random.default_rng([seed, count])
    mixing = random.normal(size=(width, width)) + 2 * np.eye(width)
    rows = [*range(classes), *random.integers(0, classes, max(0, count - classes)).tolist()][:count]
    means = random.normal(size=(classes, width))
    return (random.normal(size=(count, width)) + means[rows]) @ mixing + 3, rows


def totals(x: NDArray[np.float64], rows: list[int], classes: int = 3) -> Totals:
    return Totals.of(torch.from_numpy(x), torch.tensor(rows), classes)


def levels_of(x: NDArray[np.float64]) -> Tensor:
    return torch.tensor(LEVELS[: x.shape[1]])


def scores(x: NDArray[np.float64], rows: list[int], probes: NDArray[np.float64], k: float = 300.0) -> Tensor:
    classes = max(rows) + 1
    return Gaussian.of(totals(x, rows, classes), levels_of(x), k).head().scores(torch.from_numpy(probes)).double()


def familiarity_of(sums: Totals, levels: Tensor, k: float) -> Familiarity:
    gaussian = Gaussian.of(sums, levels, k)
    return Familiarity.of(gaussian, Overall.of(gaussian, ClassTotals(sums.sums, sums.counts), lambda: sums, levels, k))


@given(count=st.integers(4, 60), seed=st.integers(0, 50), k=st.sampled_from([0.5, 20.0, 300.0]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_scores_are_those_of_the_formula(count: int, seed: int, k: float) -> None:
    x, rows = features(count, seed)
    probes, _ = features(9, seed + 1)
    expected = dense_scores(x, rows, probes, LEVELS, k)
    torch.testing.assert_close(scores(x, rows, probes, k), torch.from_numpy(expected), rtol=1e-3, atol=1e-3)


@given(count=st.integers(4, 60), seed=st.integers(0, 50), k=st.sampled_from([20.0, 300.0]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_familiarity_is_that_of_the_formula(count: int, seed: int, k: float) -> None:
    x, rows = features(count, seed)
    probes, _ = features(9, seed + 1)
    sums, levels = totals(x, rows), levels_of(x)
    found = familiarity_of(sums, levels, k).of_features(torch.from_numpy(probes))
    expected = torch.from_numpy(dense_familiarity(x, rows, probes, LEVELS, k))
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("counts", [(30, 30, 30), (1, 1, 1), (60, 3, 0)])
def test_familiarity_is_the_same_with_many_classes_to_features(
    counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the covariance of all samples follows from that within classes, or is factored itself."""
    rows = [row for row, count in enumerate(counts) for _ in range(count)]
    (x, _), (probes, _) = features(len(rows), 0), features(9, 1)
    sums, levels = totals(x, rows, 3), levels_of(x)
    gaussian, found = Gaussian.of(totals(x, rows, 3), levels, 300.0), []
    for limit in (1, 100):
        monkeypatch.setattr(gaussian_module, "MANY_CLASSES", limit)
        overall = Overall.of(gaussian, ClassTotals(sums.sums, sums.counts), lambda: sums, levels, 300.0)
        assert (overall.between is None) == (limit == 100)
        found.append(overall.squares(torch.from_numpy(probes)))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


def test_from_so_many_samples_on_float64_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian_module, "DOUBLE", 5000)
    probes, _ = features(9, 1)
    for count in (5002, 5003):
        x, rows = features(count, 0)
        gaussian = Gaussian.of(totals(x, rows), levels_of(x), 300.0)
        assert gaussian.metric.lower.dtype == (torch.float64 if count == 5003 else torch.float32)
        expected = torch.from_numpy(dense_scores(x, rows, probes, LEVELS, 300.0))
        torch.testing.assert_close(scores(x, rows, probes), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_neither_the_unit_nor_the_origin_of_features_matters(factor: float) -> None:
    (x, rows), (probes, _) = features(30, 0), features(9, 1)
    found = scores(factor * x + 5 * factor, rows, factor * probes + 5 * factor)
    torch.testing.assert_close(found, scores(x, rows, probes), rtol=1e-3, atol=1e-3)


def test_all_class_means_have_one_length() -> None:
    """In the metric Σ⁻¹, also that of a class far from the others."""
    x, rows = features(60, 0)
    x[np.array(rows) == 2] += 1000
    gaussian = Gaussian.of(totals(x, rows), levels_of(x), 300.0)
    head = gaussian.head()
    lengths = (head.weight.double() @ metric(x, rows) * head.weight.double()).sum(1)
    torch.testing.assert_close(lengths, torch.ones(3).double(), rtol=1e-3, atol=0)


def metric(x: NDArray[np.float64], rows: list[int], k: float = 300.0) -> Tensor:
    """Σ"""
    return torch.from_numpy(dense(x, rows, LEVELS, k)[0])


@pytest.mark.parametrize(("count", "power"), [(3, 1.0), (1003, 0.5), (3003, 0.25)])
def test_a_level_raises_the_prior_until_samples_say_how_a_feature_varies(count: int, power: float) -> None:
    """By 1.75^(l D / (f + D)) with D = 1000."""
    x, rows = features(count, 0)
    of_levels = prior_variances(totals(x, rows), levels_of(x))
    plain = prior_variances(totals(x, rows), torch.zeros(8))
    expected = torch.tensor([1.75 ** (level * power) for level in LEVELS]).double()
    torch.testing.assert_close(of_levels / plain, expected)


def test_a_feature_of_a_higher_level_counts_less() -> None:
    x, rows = features(30, 0)
    weights = [
        Gaussian.of(totals(x, rows), torch.tensor([*[0] * 7, level]), 300.0).head().weight[:, 7].abs().mean()
        for level in (0, 1, 4, 8)
    ]
    assert all(later < earlier for earlier, later in itertools.pairwise(weights))


@pytest.mark.parametrize("value", [0.0, 1.0, -1e6, 1e-20])
@pytest.mark.parametrize("rows", [[0], [0, 0, 0], [0, 1], [0, 0, 1, 1]])
def test_samples_that_are_all_the_same_have_finite_scores(value: float, rows: list[int]) -> None:
    x = np.full((len(rows), 8), value)
    sums, levels = totals(x, rows, 2), levels_of(x)
    gaussian = Gaussian.of(sums, levels, 300.0)
    found = gaussian.head().scores(torch.from_numpy(x))[:, : max(rows) + 1]
    assert found.isfinite().all()
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-2)
    assert familiarity_of(sums, levels, 300.0).of_features(torch.from_numpy(x)).isfinite().all()


@pytest.mark.parametrize("count", [1, 2, 30])
def test_one_class_alone_scores_zero(count: int) -> None:
    x, _ = features(count, 0)
    probes, _ = features(9, 1)
    assert not scores(x, [0] * count, probes).any()


def test_two_classes_of_one_mean_score_alike() -> None:
    (x, _), (probes, _) = features(20, 0), features(9, 1)
    found = scores(np.concatenate([x, x]), [0] * 20 + [1] * 20, probes)
    assert found.isfinite().all()
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-3)


def test_classes_of_no_sample_score_least_and_change_nothing() -> None:
    (x, rows), (probes, _) = features(20, 0), features(9, 1)
    spread = [2 * row + 1 for row in rows]
    found = Gaussian.of(totals(x, spread, 7), levels_of(x), 300.0).head().scores(torch.from_numpy(probes))
    assert (found[:, [0, 2, 4, 6]] == -torch.inf).all()
    torch.testing.assert_close(found[:, [1, 3, 5]].double(), scores(x, rows, probes), rtol=1e-5, atol=1e-5)


def correlated(seed: int, samples: int, classes: int = 37, width: int = 600) -> list[tuple[Tensor, Tensor]]:
    """Samples of each class to learn, and twenty to predict: features of variances that fall, in any directions."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    deviations = torch.arange(1, width + 1).double() ** -0.3
    directions, means = torch.linalg.qr(normal(width, width))[0], 0.25 * normal(classes, width)
    parts = [torch.arange(classes).repeat(count) for count in (samples, 20)]
    return [((means[rows] + normal(len(rows), width)) * deviations @ directions, rows) for rows in parts]


@pytest.mark.parametrize("samples", [3, 16])
@pytest.mark.parametrize("seed", range(5))
def test_with_fewer_samples_than_features_it_does_not_collapse(seed: int, samples: int) -> None:
    """At 16 samples of each class, a shrinkage of 1e-5, which cross-validation has chosen on such streams, does."""
    (x, rows), (probes, classes) = correlated(seed, samples)
    sums = Totals.of(x, rows, 37)

    def accuracy(found: Tensor) -> float:
        return 100 * float((found.argmax(1) == classes).double().mean())

    nearest_mean = accuracy(-torch.cdist(probes, sums.sums / samples))
    found = accuracy(Gaussian.of(sums, torch.zeros(600), 300.0).head().scores(probes))
    assert found >= nearest_mean - 2
    assert 20 < nearest_mean < 99
    if samples == 16:
        weight, bias = lda(sums, 1e-5)
        assert accuracy(probes @ weight.T + bias) < nearest_mean - 20


def test_while_each_class_has_one_sample_what_all_have_in_common_counts_less() -> None:
    """Without degrees of freedom only the covariance of all samples says which directions tell nothing."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 8)) + 3 * random.normal(size=(40, 1))  # all features move together
    weight = Gaussian.of(totals(x, list(range(40)), 40), torch.zeros(8), 300.0).head().weight.double().numpy()
    along, diagonal = np.abs(weight.sum(1)).mean(), np.linalg.norm(weight, axis=1).mean()
    plain = x - x.mean(0)  # without that covariance the metric is the same for all features: means are the weights
    assert along / diagonal < 0.8 * np.abs(plain.sum(1)).mean() / np.linalg.norm(plain, axis=1).mean()


@pytest.mark.parametrize("rows", [[0], [0, 0, 0], [0, 1, 2]], ids=["one image", "one class", "copies"])
def test_without_two_directions_the_cosine_takes_no_part(rows: list[int]) -> None:
    x = np.ones((len(rows), 8))
    sums = totals(x, rows, max(rows) + 1)
    head, means = Gaussian.of(sums, levels_of(x), 300.0).head(), torch.from_numpy(x[: max(rows) + 1])
    blend = Blend.of(head, means, means[:, :3], float(len(rows)))
    found = blend.scores(torch.ones(2, 8), torch.ones(2, 3))
    assert blend.weight == 0
    torch.testing.assert_close(found, head.scores(torch.ones(2, 8)))
