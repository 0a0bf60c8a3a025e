"""Generalised cross-validation from moments against ridge regression on the samples themselves."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.closed_form import layup
from prol.methods.closed_form.layup import FIRST, NO_FREEDOM, STRENGTHS, choose_strength, cross_validated
from prol.methods.closed_form.moments import Totals

CLASSES = 3


def samples(count: int, width: int, noise: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features that lie about the means of their classes."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randint(CLASSES, (count,), generator=random)
    centres = torch.randn(CLASSES, width, generator=random, dtype=torch.float64)
    return centres[rows] + noise * torch.randn(count, width, generator=random, dtype=torch.float64), rows


def one_hot(rows: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(rows, CLASSES).double()


def fitted(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """Weights `[M, C]` of ridge regression, as least squares with rows for the penalty."""
    width = x.shape[1]
    stacked = torch.cat([x, math.sqrt(penalty) * torch.eye(width).double()])
    solved: Tensor = torch.linalg.lstsq(stacked, torch.cat([y, torch.zeros(width, y.shape[1]).double()])).solution
    return solved


def residue(x: Tensor, y: Tensor, penalty: float) -> float:
    return float((x @ fitted(x, y, penalty) - y).square().sum())


def hat(x: Tensor, penalty: float) -> Tensor:
    """What takes targets to fitted values, `[N, N]`."""
    return x @ torch.linalg.inv(x.T @ x + penalty * torch.eye(x.shape[1]).double()) @ x.T


def of_moments(x: Tensor, rows: Tensor, penalty: float) -> float:
    return cross_validated(Totals.of(x, rows, CLASSES), penalty)


def unit_of(x: Tensor) -> float:
    return float(x.square().sum(0).mean())


SINGLE = 2e-7
"""How far the trace of an inverse in single precision may be off as a share: about its rounding, 2⁻²³."""


@given(count=st.integers(12, 40), width=st.integers(1, 60), penalty=st.floats(1e-2, 1e3), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_it_is_the_formula_on_samples(count: int, width: int, penalty: float, seed: int) -> None:
    """Only the parameters are counted in single precision, and these are at most as many as features.

    So the freedom is off by that share of width / count, and the error by twice as much over the freedom: about 1e-4
    where that is least, and 1e-7 as a rule.
    """
    x, rows = samples(count, width, seed=seed)
    freedom = 1 - float(hat(x, penalty).trace()) / count
    found, doubt = of_moments(x, rows, penalty), SINGLE * width / count
    if abs(freedom - NO_FREEDOM) > doubt:
        expected = residue(x, one_hot(rows), penalty) / freedom**2 if freedom > NO_FREEDOM else math.inf
        assert found == pytest.approx(expected, rel=1e-8 + 2 * doubt / max(freedom, NO_FREEDOM), abs=1e-9)


def in_double(totals: Totals, penalty: float) -> float:
    """The same error by eigenvalues, nothing of it in single precision."""
    values, vectors = torch.linalg.eigh(totals.gram)
    values, turned, count = values.clamp(min=0), totals.sums @ vectors, float(totals.counts.sum())
    left = count - float((turned.square() * ((values + 2 * penalty) / (values + penalty) ** 2)).sum())
    freedom = 1 - float((values / (values + penalty)).sum()) / count
    return left / freedom**2 if freedom > NO_FREEDOM else math.inf


@given(
    count=st.integers(5, 200),
    width=st.integers(1, 120),
    noise=st.floats(0.05, 20),
    decay=st.floats(0, 1.5),
    top=st.sampled_from([FIRST, len(STRENGTHS) - 1]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_choice_is_that_of_double_precision(
    count: int, width: int, noise: float, decay: float, top: int, seed: int
) -> None:
    """Whether features outnumber samples or not, and whether they vary alike or by orders of magnitude."""
    x, rows = samples(count, width, noise, seed)
    totals = Totals.of(x * torch.arange(1, width + 1).double() ** -decay, rows, CLASSES)
    chosen = choose_strength(totals, top)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layup, "cross_validated", in_double)
        assert choose_strength(totals, top) == chosen


def left_out(x: Tensor, y: Tensor, penalty: float) -> float:
    """The error on each sample by a regression to all the others."""
    total = 0.0
    for out in range(len(x)):
        others = torch.arange(len(x)) != out
        total += float((x[out] @ fitted(x[others], y[others], penalty) - y[out]).square().sum())
    return total


@pytest.mark.parametrize("noise", [0.5, 2.0, 6.0])
def test_the_choice_is_next_to_the_best_when_each_sample_is_left_out(noise: float) -> None:
    x, rows = samples(60, 6, noise)
    unit, y = unit_of(x), one_hot(rows)
    errors = [left_out(x, y, strength * unit) for strength in STRENGTHS]
    chosen = choose_strength(Totals.of(x, rows, CLASSES))
    assert abs(chosen - errors.index(min(errors))) <= 1
    assert errors[chosen] < 1.02 * min(errors)
    assert errors[chosen] < 0.98 * max(errors)


def test_more_noise_wants_a_larger_penalty() -> None:
    chosen = [choose_strength(Totals.of(*samples(300, 20, noise), CLASSES)) for noise in (0.05, 1.0, 20.0)]
    assert chosen[0] < chosen[1] < chosen[2]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.3, 3.0, 20.0])
def test_the_walk_ends_where_the_error_is_least_of_all(noise: float, seed: int) -> None:
    x, rows = samples(300, 20, noise, seed)
    errors = [of_moments(x, rows, strength * unit_of(x)) for strength in STRENGTHS]
    assert choose_strength(Totals.of(x, rows, CLASSES)) == errors.index(min(errors))


@pytest.mark.parametrize("scale", [1000.0, 0.001])
def test_the_unit_does_not_matter(scale: float) -> None:
    x, rows = samples(100, 8, 2.0)
    scaled = choose_strength(Totals.of(scale * x, rows, CLASSES))
    assert scaled == choose_strength(Totals.of(x, rows, CLASSES)) != FIRST


def test_samples_counted_for_a_share_are_as_many_as_their_counts_say() -> None:
    """Halves of two copies are one sample."""
    x, rows = samples(50, 6)
    twice = Totals.of(x.repeat(2, 1), rows.repeat(2), CLASSES)
    halves = Totals(twice.gram / 2, twice.sums / 2, twice.counts / 2)
    penalty = 0.1 * unit_of(x)
    assert cross_validated(halves, penalty) == pytest.approx(of_moments(x, rows, penalty), rel=1e-9)
    assert cross_validated(twice, penalty) < 2 * of_moments(x, rows, penalty)


def test_as_many_parameters_as_samples_leave_no_freedom() -> None:
    x, rows = samples(8, 8)
    unit = unit_of(x)
    assert of_moments(x, rows, 1e-9 * unit) == math.inf
    assert of_moments(x, rows, unit) < math.inf
    assert 1 - float(hat(x, 1e-9 * unit).trace()) / 8 < NO_FREEDOM


def test_features_of_zero_choose_nothing() -> None:
    assert choose_strength(Totals.of(torch.zeros(40, 4), torch.arange(40) % CLASSES, CLASSES)) == FIRST


def test_nothing_seen_chooses_nothing() -> None:
    assert choose_strength(Totals.of(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), CLASSES)) == FIRST


def test_classes_without_samples_change_nothing() -> None:
    x, rows = samples(100, 8)
    few, many = Totals.of(x, rows, CLASSES), Totals.of(x, rows, CLASSES + 5)
    penalty = 0.1 * unit_of(x)
    assert cross_validated(few, penalty) == pytest.approx(cross_validated(many, penalty))


@pytest.mark.parametrize("count", [32, 128, 300])
def test_with_more_features_than_samples_the_walk_ends_there_too(count: int) -> None:
    x, rows = samples(count, 200, 3.0)
    errors = [of_moments(x, rows, strength * unit_of(x)) for strength in STRENGTHS]
    assert choose_strength(Totals.of(x, rows, CLASSES)) == errors.index(min(errors))


def test_strengths_are_half_powers_of_ten_about_one() -> None:
    assert STRENGTHS[FIRST] == 1.0
    ratios = [upper / lower for lower, upper in pairwise(STRENGTHS)]
    assert ratios == pytest.approx([math.sqrt(10)] * (len(STRENGTHS) - 1))
    assert STRENGTHS[0] < 1e-4
    assert STRENGTHS[-1] > 10
