"""Drawn-in means against singular values of plain vectors, against samples, and against the truth of made-up data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal

from prol.methods.closed_form.moments import Moments, Totals
from prol.methods.closed_form.solvers import factor, lda
from prol.methods.prol_plus import mean_shrinkage
from prol.methods.prol_plus.mean_shrinkage import efron_morris, james_stein, shrinkage, shrunk_lda
from prol.state import State

COUNTS = st.lists(st.integers(1, 12), min_size=2, max_size=5).filter(lambda counts: sum(counts) > len(counts) + 2)
SEEDS = st.integers(0, 99)
some = settings(max_examples=30, deadline=None, derandomize=True)


class Data(NamedTuple):
    """Samples, the true means of their classes and inverse covariance within these, and probes to be told apart."""

    x: Tensor
    rows: Tensor
    means: Tensor
    metric: Tensor
    probes: Tensor
    truth: Tensor

    def totals(self) -> Totals:
        return Totals.of(self.x, self.rows, len(self.means))

    def found(self) -> tuple[Tensor, Tensor]:
        """Means of the samples, and the covariance about them."""
        means = torch.stack([self.x[self.rows == row].mean(0) for row in range(len(self.means))])
        apart = self.x - means[self.rows]
        return means, apart.T @ apart / len(self.x)


def data(counts: list[int], width: int = 6, length: float = 2.0, shared: int | None = None, seed: int = 0) -> Data:
    """Gaussian classes whose means lie about `length` deviations away, in any or in some `shared` directions."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    directions = torch.linalg.qr(normal(width, shared or width))[0] / (shared or width) ** 0.5
    mix = torch.linalg.qr(normal(width, width))[0] * torch.logspace(-0.5, 0.5, width).double()
    means = 1 + length * normal(len(counts), shared or width) @ directions.T @ mix.T
    rows, truth = (torch.arange(len(counts)).repeat_interleave(torch.tensor(n)) for n in (counts, 20))
    x, probes = (means[of] + normal(len(of), width) @ mix.T for of in (rows, truth))
    return Data(x, rows, means, torch.linalg.inv(mix @ mix.T), probes, truth)


def scored(totals: Totals, probes: Tensor, penalty: float = 0.1, rounding: float = 0.0) -> Tensor:
    weight, bias = shrunk_lda(totals, penalty, rounding)
    return probes @ weight.T + bias


def plainly(totals: Totals, probes: Tensor, penalty: float = 0.1) -> Tensor:
    """Scores of LDA whose means are as they are found, with the same covariance."""
    weight, bias = lda(totals, penalty / (1 + penalty))
    return (probes @ weight.T + bias) / (1 + penalty)


def alike(found: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Up to what all classes share."""
    apart = [scores - scores[:, :1] for scores in (found, expected)]
    torch.testing.assert_close(*apart, rtol=tolerance, atol=tolerance)


def by_own_length(z: Tensor, counts: list[int], noise: float) -> Tensor:
    """James and Stein on means z, in whose coordinates a sample's noise has length one in each direction."""
    lengths = [float(mean @ mean) for mean in z]
    left = [max(0.0, length - noise / n) for length, n in zip(lengths, counts, strict=True)]
    signal = max(sum(left), mean_shrinkage.LEAST_SIGNAL * sum(lengths)) / len(counts)
    return torch.stack([mean * signal / (signal + noise / n) for mean, n in zip(z, counts, strict=True)])


def by_singular_values(z: Tensor, counts: list[int], noise: float) -> Tensor:
    """Efron and Morris on them."""
    root = torch.tensor(counts).double().sqrt().unsqueeze(1)
    left, values, right = torch.linalg.svd(root * z, full_matrices=False)
    kept = torch.tensor([value - noise / value if value**2 > noise else 0.0 for value in values.tolist()]).double()
    return left @ torch.diag(kept) @ right / root


def vectors(counts: list[int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Means, their products and counts."""
    z = torch.randn(len(counts), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z, z @ z.T, torch.tensor(counts).double()


@given(counts=COUNTS | st.integers(2, 5).map(lambda classes: [7] * classes), noise=st.floats(0.01, 30), seed=SEEDS)
@some
def test_both_beliefs_are_what_vectors_give_and_count_by_half(counts: list[int], noise: float, seed: int) -> None:
    z, products, n = vectors(counts, seed)
    alone, together = by_own_length(z, counts, noise), by_singular_values(z, counts, noise)
    torch.testing.assert_close(james_stein(products, n, noise).T @ z, alone)
    torch.testing.assert_close(efron_morris(products, n, noise).T @ z, together)
    torch.testing.assert_close(shrinkage(products, n, noise).T @ z, (alone + together) / 2)


@given(counts=COUNTS, noise=st.floats(0.01, 1000), seed=SEEDS)
@some
def test_a_mean_is_believed_the_more_the_more_samples_it_has(counts: list[int], noise: float, seed: int) -> None:
    """By itself; equally many are shrinkage equally, and none is turned or stretched."""
    _, products, n = vectors(counts, seed)
    found = james_stein(products, n, noise)
    factors = found.diagonal()
    assert torch.equal(found, torch.diag(factors))
    assert 0 < float(factors.min()) <= float(factors.max()) < 1
    assert torch.equal(factors.unsqueeze(1) > factors, n.unsqueeze(1) > n)


def test_of_means_that_are_all_noise_a_tenth_of_the_squared_length_is_signal() -> None:
    """Else no class would have a score of its own. Here lengths of 1 and 3, and noise of 40 / 4."""
    products, counts = torch.diag(torch.tensor([1.0, 3.0])).double(), torch.tensor([4.0, 4.0]).double()
    assert james_stein(products, counts, 40.0).diagonal().tolist() == pytest.approx([0.2 / 10.2] * 2)


def test_where_noise_is_beyond_all_lengths_no_direction_is_shared() -> None:
    z, products, n = vectors([3, 5, 9])
    longest = float(torch.linalg.matrix_norm(n.sqrt().unsqueeze(1) * z, ord=2)) ** 2
    assert not efron_morris(products, n, 1.001 * longest).any()
    assert efron_morris(products, n, 0.999 * longest).any()


@pytest.mark.parametrize("belief", [james_stein, efron_morris, shrinkage])
def test_with_no_end_of_samples_or_no_noise_means_stay_as_they_are(belief: Callable[..., Tensor]) -> None:
    _, products, n = vectors([3, 5, 9])
    identity = torch.eye(3).double()
    for many in (1e3, 1e6, 1e9):
        torch.testing.assert_close(belief(products, many * n, 2.0), identity, rtol=0, atol=20 / many)
    assert all(torch.equal(shrinkage(products, n, noise), identity) for noise in (0.0, -1.0))


@given(counts=COUNTS, penalty=st.floats(1e-3, 10), rounding=st.sampled_from([0.0, 0.01]), seed=SEEDS)
@some
def test_scores_are_log_densities_about_shrunk_means(
    counts: list[int], penalty: float, rounding: float, seed: int
) -> None:
    """Up to what classes share; all of it from the samples themselves."""
    d = data(counts, seed=seed)
    means, within = d.found()
    added = penalty * within.diagonal().mean() + rounding * d.x.square().mean()
    covariance, values = within + added * torch.eye(6).double(), torch.linalg.eigvalsh(within)
    dimensions = float((values / (values + added)).sum())
    noise = dimensions / max(mean_shrinkage.LEAST_FREEDOM, 1 - dimensions / len(d.x))
    lower, centre = torch.linalg.cholesky(covariance), d.x.mean(0)
    z = torch.linalg.solve(lower, (means - centre).T).T
    drawn = centre + (by_own_length(z, counts, noise) + by_singular_values(z, counts, noise)) / 2 @ lower.T
    expected = torch.stack([MultivariateNormal(mean, covariance).log_prob(d.probes) for mean in drawn], dim=1)
    alike(scored(d.totals(), d.probes, penalty, rounding), expected)


@pytest.mark.parametrize("penalty", [1e-3, 0.3])
def test_without_noise_it_is_plain_lda(monkeypatch: pytest.MonkeyPatch, penalty: float) -> None:
    monkeypatch.setattr(mean_shrinkage, "_noise", lambda *_: 0.0)
    d = data([9, 4, 1, 20])
    alike(scored(d.totals(), d.probes, penalty), plainly(d.totals(), d.probes, penalty), 1e-9)


@given(counts=COUNTS, unit=st.floats(-6, 6), offset=st.floats(-20, 20), seed=SEEDS)
@some
def test_neither_unit_nor_origin_nor_axes_nor_the_order_of_classes_matter(
    counts: list[int], unit: float, offset: float, seed: int
) -> None:
    d, random = data(counts, seed=seed), torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=random, dtype=torch.float64))[0]
    away, new = offset * torch.randn(6, generator=random).double(), torch.randperm(len(counts), generator=random)
    expected = scored(d.totals(), d.probes)
    moves: list[Callable[[Tensor], Tensor]] = [lambda x: 10**unit * x, lambda x: x + away, lambda x: x @ turn]
    for move in moves:
        found = scored(Totals.of(move(d.x), d.rows, len(counts)), move(d.probes))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    found = scored(Totals.of(d.x, new[d.rows], len(counts)), d.probes)
    torch.testing.assert_close(found[:, new], expected, rtol=1e-6, atol=1e-6)


@given(counts=COUNTS, before=st.integers(0, 3), after=st.integers(0, 3), seed=SEEDS)
@some
def test_classes_without_samples_change_nothing(counts: list[int], before: int, after: int, seed: int) -> None:
    d = data(counts, seed=seed)
    found = scored(Totals.of(d.x, d.rows + before, before + len(counts) + after), d.probes)
    assert found.isfinite().all()
    torch.testing.assert_close(found[:, before : before + len(counts)], scored(d.totals(), d.probes))


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-4])
def test_with_one_image_a_class_or_copies_of_it_the_nearest_wins(copies: int, apart: float) -> None:
    """However little images differ: of noise nothing is known there, so there is none."""
    d = data([1] * 40, width=100)
    images = 3 * d.probes[0] + apart * torch.linspace(0.1, 2, 40).double().unsqueeze(1) * d.x
    totals = Totals.of(images.repeat(copies, 1), d.rows.repeat(copies), 40)
    for rounding in (0.0, 1e-5):
        assert torch.equal(scored(totals, images, rounding=rounding).argmax(1), d.rows)


@pytest.mark.parametrize("counts", [[1], [9], [0, 3, 0], [0, 1], [1, 1, 30]], ids=str)
@pytest.mark.parametrize("copies", [False, True])
def test_however_little_was_seen_weights_are_finite(counts: list[int], copies: bool) -> None:
    d = data(counts)
    x = d.x[:1].expand(len(d.x), -1) if copies else d.x
    for features in (x, 1 + 1e-9 * x, 1e6 * x, 1e-6 * x):
        solved = shrunk_lda(Totals.of(features, d.rows, len(counts)), 0.1, 1e-5)
        assert all(found.isfinite().all() for found in solved)


@pytest.mark.parametrize("count", [0, 3])
def test_statistics_of_nothing_can_be_solved(count: int) -> None:
    """Of no samples, or of features that are all zero."""
    weight, bias = shrunk_lda(Totals.of(torch.zeros(count, 4), torch.zeros(count).long(), 2), 0.1, 1e-5)
    assert not weight.any()
    assert not bias.any()


@pytest.mark.parametrize("width", [6, 80])
@pytest.mark.parametrize("penalty", [1e-6, 1e-2])
def test_moments_in_single_precision_answer_alike(width: int, penalty: float) -> None:
    """Though there may be fewer samples than features, and each of these comes twice."""
    d = data([30, 20, 9, 4, 1], width, length=6.0)
    x, probes = (torch.cat([features, features], dim=1) for features in (d.x, d.probes))
    state = State()
    moments = Moments(state, 2 * width, torch.float32)
    state.add_classes(5)
    moments.add(x, d.rows)
    found, exact = (scored(totals, probes, penalty, 1e-5) for totals in (moments.totals(), Totals.of(x, d.rows, 5)))
    assert found.isfinite().all()
    assert (found.argmax(1) == exact.argmax(1)).double().mean() >= 0.95


@given(width=st.integers(1, 30), count=st.integers(2, 60), penalty=st.floats(1e-4, 100), seed=SEEDS)
@some
def test_noise_is_the_dimensions_that_the_penalty_leaves_over_the_share_of_samples_these_leave(
    width: int, count: int, penalty: float, seed: int
) -> None:
    x = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    within = x.T @ x / count
    matrix = within + penalty * torch.eye(width).double()
    dimensions = float(torch.trace(torch.linalg.inv(matrix) @ within))
    expected = dimensions / max(0.05, 1 - dimensions / count)
    assert mean_shrinkage._noise(factor(matrix), penalty, count) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("width", "counts"), [(30, [60] * 5), (100, [60] * 5), (100, [30] * 10)], ids=str)
def test_noise_is_how_far_means_are_off_in_the_metric_they_are_measured_in(width: int, counts: list[int]) -> None:
    """On average, times their samples: the covariance that was found itself is too small, by up to a third here."""
    off, told = 0.0, 0.0
    for seed in range(10):
        d = data(counts, width, seed=seed)
        means, within = d.found()
        added = 1e-6 * float(within.diagonal().mean())
        lower = factor(within + added * torch.eye(width).double())
        told += mean_shrinkage._noise(lower, added, len(d.x))
        off += counts[0] * float(torch.linalg.solve(lower, (means - d.means).T).square().sum(0).mean())
    assert told == pytest.approx(off, rel=0.1)


@pytest.mark.parametrize(("shared", "share"), [(None, 0.8), (3, 0.5)])
@pytest.mark.parametrize("counts", [[10] * 20, [60] * 10 + [4] * 10], ids=["even", "uneven"])
def test_shrunk_means_are_nearer_to_the_truth(counts: list[int], shared: int | None, share: float) -> None:
    """Weights are Σ⁻¹m̃, so they tell where means were drawn to."""
    for seed in range(4):
        d = data(counts, 100, 4.0, shared, seed)
        means, within = d.found()
        covariance = within + 0.01 * within.diagonal().mean() * torch.eye(100).double()
        drawn = d.x.mean(0) + shrunk_lda(d.totals(), 0.01)[0] @ covariance
        raw, better = (float(((m - d.means) @ d.metric * (m - d.means)).sum()) for m in (means, drawn))
        assert better < share * raw


@pytest.mark.parametrize("shared", [None, 3])
def test_classes_of_few_samples_are_found_more_often_than_by_plain_lda(shared: int | None) -> None:
    """And all classes together too: what the others lose is less."""
    for seed in range(4):
        d = data([60] * 15 + [6] * 15, 150, 4.0, shared, seed)
        found, plain = (
            (score(d.totals(), d.probes, 0.01).argmax(1) == d.truth).double() for score in (scored, plainly)
        )
        assert found[d.truth >= 15].mean() > plain[d.truth >= 15].mean() + 0.1
        assert found.mean() > plain.mean() + 0.02


@pytest.mark.parametrize("penalty", [0.001, 0.1, 3.0])
def test_without_shrinkage_of_means_it_is_plain_lda(penalty: float) -> None:
    d = data([30, 5, 12], 8)
    weight, bias = shrunk_lda(d.totals(), penalty, shrink_means=False)
    alike(d.probes @ weight.T + bias, plainly(d.totals(), d.probes, penalty))
