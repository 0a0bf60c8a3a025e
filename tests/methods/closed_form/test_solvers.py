"""Solvers against the formulas on plain features."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import (
    STRENGTHS,
    UNCHOSEN,
    SolvedHead,
    choose_ridge,
    factor,
    held_out_error,
    lda,
    mean_square,
    oas_share,
    recursive_least_squares,
    ridge,
    within_classes,
)

CLASSES, WIDTH = 3, 5


def samples(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    rows = torch.arange(count) % CLASSES
    centres = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return centres[rows] + 0.7 * torch.randn(count, WIDTH, generator=random, dtype=torch.float64), rows


def one_hot(rows: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(rows, CLASSES).double()


FEATURES, ROWS = samples(30)
TOTALS = Totals.of(FEATURES, ROWS, CLASSES)


def test_ridge_is_least_squares_on_features_with_rows_for_the_penalty() -> None:
    stacked = torch.cat([FEATURES, 2.0**0.5 * torch.eye(WIDTH, dtype=torch.float64)])
    targets = torch.cat([one_hot(ROWS), torch.zeros(WIDTH, CLASSES, dtype=torch.float64)])
    expected = torch.linalg.lstsq(stacked, targets).solution.T
    torch.testing.assert_close(ridge(TOTALS, 2.0), expected, rtol=0, atol=1e-12)


def test_the_held_out_error_needs_no_sample() -> None:
    weight = ridge(TOTALS, 1.0)
    features, rows = samples(11, seed=4)
    direct = (features @ weight.T - one_hot(rows)).square().sum(1).mean()
    assert held_out_error(weight, Totals.of(features, rows, CLASSES)) == pytest.approx(float(direct), abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_chosen_ridge_has_the_least_held_out_error_in_any_unit(scale: float) -> None:
    features, rows = samples(8, seed=5)
    fit, held = Totals.of(scale * features, rows, CLASSES), Totals.of(scale * FEATURES, ROWS, CLASSES)
    unit = mean_square(fit)
    errors = {strength: held_out_error(ridge(fit, strength * unit), held) for strength in STRENGTHS}
    chosen = choose_ridge(fit, held) / unit
    assert min(errors, key=lambda strength: errors[strength]) == pytest.approx(chosen)
    assert STRENGTHS[0] < chosen < STRENGTHS[-1]
    plain = Totals.of(features, rows, CLASSES)
    assert chosen == pytest.approx(choose_ridge(plain, TOTALS) / mean_square(plain))


@pytest.mark.parametrize(("shift", "end"), [(0, 0), (1, -1)])
def test_the_search_may_end_at_either_side(shift: int, end: int) -> None:
    """Features that tell the class want no penalty; ones that tell of a wrong class want all of it."""
    rows = torch.arange(30) % CLASSES
    fit, held = (Totals.of(one_hot((rows + by) % CLASSES), rows, CLASSES) for by in (0, shift))
    assert choose_ridge(fit, held) == STRENGTHS[end] * mean_square(fit)


def test_without_held_out_samples_a_fixed_strength_is_taken() -> None:
    assert choose_ridge(TOTALS, Totals.of(FEATURES[:0], ROWS[:0], CLASSES)) == mean_square(TOTALS)


def test_ridge_strengths_span_sixteen_powers_of_ten() -> None:
    assert len(STRENGTHS) == 49
    assert (STRENGTHS[0], STRENGTHS[UNCHOSEN], STRENGTHS[-1]) == pytest.approx((1e-8, 1, 1e8))


def pooled_covariance() -> tuple[Tensor, Tensor]:
    means = torch.stack([FEATURES[row::CLASSES].mean(0) for row in range(CLASSES)])
    residuals = FEATURES - means[ROWS]
    return means, residuals.T @ residuals / len(ROWS)


def test_within_classes_are_means_and_the_covariance_about_them() -> None:
    """A class without samples has a mean of zero; what was given is not changed."""
    totals, (means, covariance) = Totals.of(FEATURES, ROWS, CLASSES + 1), pooled_covariance()
    gram = totals.gram.clone()
    found = within_classes(totals)
    torch.testing.assert_close(found[0], torch.cat([means, torch.zeros(1, WIDTH).double()]))
    torch.testing.assert_close(found[1], covariance)
    assert torch.equal(totals.gram, gram)
    assert not any(part.any() for part in within_classes(Totals.of(FEATURES[:0], ROWS[:0], CLASSES)))


@pytest.mark.parametrize("shrinkage", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("priors", [False, True])
def test_lda_is_the_gaussian_score_with_one_shrunk_covariance(shrinkage: float | None, priors: bool) -> None:
    means, covariance = pooled_covariance()
    share = oas_share(covariance, 30) if shrinkage is None else shrinkage
    target = covariance.trace() / WIDTH * torch.eye(WIDTH, dtype=torch.float64)
    inverse = torch.linalg.inv((1 - share) * covariance + share * target)
    weight, bias = lda(TOTALS, shrinkage, priors)
    torch.testing.assert_close(weight, means @ inverse, rtol=1e-9, atol=1e-9)
    expected = -0.5 * (means @ inverse * means).sum(1)
    if priors:
        expected = expected + torch.log(torch.full((CLASSES,), 1 / 3, dtype=torch.float64))
    torch.testing.assert_close(bias, expected, rtol=1e-9, atol=1e-9)


def test_priors_favour_classes_of_which_more_was_seen() -> None:
    totals = Totals.of(FEATURES[:28], ROWS[:28], CLASSES)
    plain, favoured = lda(totals)[1], lda(totals, priors=True)[1]
    torch.testing.assert_close(favoured - plain, (torch.tensor([10.0, 9.0, 9.0]).double() / 28).log())


def test_oas_by_hand() -> None:
    covariance = torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))
    # a = 10/4, m = 2: (2.5 + 4) / (101 (2.5 - 4/2)) for a hundred samples; above one for ten
    assert oas_share(covariance, 100) == pytest.approx(6.5 / 50.5)
    assert oas_share(covariance, 10) == 1.0
    assert oas_share(torch.eye(4, dtype=torch.float64), 1000) == 1.0


def test_with_one_sample_a_class_lda_takes_the_nearest() -> None:
    totals = Totals.of(FEATURES[:3], ROWS[:3], CLASSES)
    head = SolvedHead(*lda(totals), totals.counts > 0)
    probes = samples(40, seed=6)[0]
    assert torch.equal(head.scores(probes).argmax(1), torch.cdist(probes, FEATURES[:3]).argmin(1))


def test_copies_of_one_image_are_no_spread() -> None:
    features, rows = FEATURES[:3].repeat(4, 1), ROWS[:3].repeat(4)
    weight, bias = lda(Totals.of(features, rows, CLASSES))
    assert weight.isfinite().all()
    assert bias.isfinite().all()
    assert torch.equal((features @ weight.T + bias).argmax(1), rows)


@given(cuts=st.sets(st.integers(1, 29), max_size=8), order=st.permutations(range(30)))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_recursive_least_squares_is_ridge_after_every_chunk(cuts: set[int], order: list[int]) -> None:
    inverse = torch.eye(WIDTH, dtype=torch.float64) / 0.5
    weight = torch.zeros(CLASSES, WIDTH, dtype=torch.float64)
    for start, end in pairwise([0, *sorted(cuts), 30]):
        chunk, so_far = order[start:end], order[:end]
        recursive_least_squares(inverse, weight, FEATURES[chunk], one_hot(ROWS[chunk]))
        joint = Totals.of(FEATURES[so_far], ROWS[so_far], CLASSES)
        torch.testing.assert_close(weight, ridge(joint, 0.5), rtol=0, atol=1e-8)
    torch.testing.assert_close(inverse, inverse.T, rtol=0, atol=1e-14)


def test_classes_without_samples_never_win() -> None:
    seen = torch.tensor([True, False, True])
    head = SolvedHead(ridge(TOTALS, 1.0), None, seen)
    scores = head.scores(FEATURES)
    assert (scores[:, 1] == -torch.inf).all()
    assert scores[:, seen].isfinite().all()


@pytest.mark.parametrize("empty", [Totals.of(FEATURES[:0], ROWS[:0], CLASSES)])
def test_statistics_of_nothing_can_be_solved(empty: Totals) -> None:
    weight, bias = lda(empty)
    assert not weight.any()
    assert not bias.any()
    assert not ridge(empty, choose_ridge(empty, empty)).any()


def test_what_rounding_took_below_zero_is_raised() -> None:
    nearly = torch.diag(torch.tensor([1.0, 1.0, -1e-11], dtype=torch.float64))
    assert factor(nearly).isfinite().all()


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="backbone returns NaN or infinity"):
        factor(torch.full((2, 2), torch.nan, dtype=torch.float64))
