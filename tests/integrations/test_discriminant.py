"""LDA of a stream of feature vectors: what it gives, and that nothing but the data decides it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from prol.integrations.discriminant import Discriminant, Shrinkage
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import oas_share, within_classes


def blobs(seed: int = 0, count: int = 60, width: int = 5, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Correlated features of different units, and their class rows."""
    random = np.random.default_rng(seed)
    rows = np.concatenate([np.arange(classes), random.integers(0, classes, count - classes)])
    mixing = random.normal(size=(width, width)) * 10.0 ** np.arange(-2, width - 2)
    x = (random.normal(size=(count, width)) + random.normal(size=(classes, width))[rows]) @ mixing
    return torch.tensor(x), torch.tensor(rows)


def taught(x: Tensor, rows: Tensor, chunk: int | None = None) -> Discriminant:
    found = Discriminant(x.shape[1])
    found.add_classes(int(rows.max()) + 1)
    for start in range(0, len(x), chunk or len(x)):
        part = slice(start, start + (chunk or len(x)))
        found.learn(x[part], rows[part])
    return found


def shares(found: Discriminant, x: Tensor, shrinkage: Shrinkage = "oas", priors: bool = True) -> Tensor:
    return found.scores(x, shrinkage, priors).softmax(1)


@pytest.mark.parametrize("priors", [True, False])
def test_without_shrinkage_it_is_scikit_learns_lda(priors: bool) -> None:
    x, rows = blobs()
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=None if priors else [1 / 3] * 3)
    if not priors:  # theirs then weighs the classes' covariances alike; ours by their samples, as with equal classes
        rows = torch.arange(60) % 3
    theirs.fit(x.numpy(), rows.numpy())
    ours = shares(taught(x, rows, chunk=7), x, shrinkage=0.0, priors=priors)
    torch.testing.assert_close(ours, torch.tensor(theirs.predict_proba(x.numpy())), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shrinkage", ["oas", 0.3])
def test_shrinkage_is_that_of_the_formula_on_standardised_features(shrinkage: Shrinkage) -> None:
    x, rows = blobs(count=20)
    z = (x - x.mean(0)) / x.std(0, correction=0)
    means, covariance = within_classes(Totals.of(z, rows, 3))
    share = oas_share(covariance, 20) if shrinkage == "oas" else float(shrinkage)
    shrunk = (1 - share) * covariance + share * covariance.diagonal().mean() * torch.eye(5)
    apart = z.unsqueeze(1) - means
    expected = -0.5 * (apart @ torch.linalg.inv(shrunk) * apart).sum(2) + torch.bincount(rows).log()
    torch.testing.assert_close(shares(taught(x, rows), x, shrinkage), expected.softmax(1))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 25), st.randoms(use_true_random=False))
def test_neither_order_nor_chunks_make_a_difference(seed: int, chunk: int, random: object) -> None:
    x, rows = blobs(seed, count=25)
    order = list(range(25))
    random.shuffle(order)  # type: ignore[attr-defined]
    torch.testing.assert_close(shares(taught(x[order], rows[order], chunk), x), shares(taught(x, rows), x))


def test_units_make_no_difference() -> None:
    x, rows = blobs()
    units = torch.tensor([1e-6, 1.0, 1e3, 1e9, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(shares(taught(x * units, rows), x * units), shares(taught(x, rows), x))


@pytest.mark.parametrize("chunk", [1, None])
def test_features_far_from_zero_keep_their_precision(chunk: int | None) -> None:
    x, rows = blobs()
    far = x + 1e9 * x.std(0)  # times of the clock in seconds: squares of them would leave nothing of the spread
    torch.testing.assert_close(shares(taught(far, rows, chunk), far), shares(taught(x, rows), x), rtol=1e-4, atol=1e-6)


def test_a_feature_that_never_changes_is_left_out_even_when_it_does_later() -> None:
    x, rows = blobs()
    still = torch.cat([x, torch.full((60, 1), 0.1, dtype=torch.float64)], 1)
    moved = torch.cat([x, torch.full((60, 1), 7.0, dtype=torch.float64)], 1)
    torch.testing.assert_close(shares(taught(still, rows, chunk=7), moved), shares(taught(x, rows), x))


def test_features_that_come_later_were_zero_before() -> None:
    x, rows = blobs(width=5)
    x[:30, 2:] = 0
    late = Discriminant(2)
    late.add_classes(3)
    late.learn(x[:30, :2], rows[:30])
    late.widen(5)
    late.learn(x[30:], rows[30:])
    torch.testing.assert_close(shares(late, x), shares(taught(x, rows), x))


def test_one_sample_of_each_class_makes_the_nearest_one_win() -> None:
    x = torch.tensor([[0.0, 0.0], [4.0, 1.0], [8.0, 9.0]], dtype=torch.float64)
    found = taught(x, torch.arange(3))
    assert found.scores(x + 0.3, "oas", True).argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("width", [0, 3])
def test_without_any_difference_the_classes_seen_more_are_more_probable(width: int) -> None:
    found = taught(torch.ones(4, width, dtype=torch.float64), torch.tensor([0, 1, 1, 1]))
    x = torch.ones(1, width, dtype=torch.float64)
    assert shares(found, x).flatten().tolist() == pytest.approx([0.25, 0.75])
    assert shares(found, x, priors=False).tolist() == [[0.5, 0.5]]


def test_a_class_without_any_sample_is_never_predicted() -> None:
    x, rows = blobs()
    found = taught(x, rows)
    found.add_classes(1)
    for priors in (True, False):
        assert shares(found, x, priors=priors)[:, 3].tolist() == [0.0] * 60


def test_features_that_could_overflow_are_refused_and_change_nothing() -> None:
    x, rows = blobs()
    found = taught(x, rows)
    before = pickle.dumps(found)
    for bad in (torch.nan, torch.inf, 1e101):
        with pytest.raises(ValueError, match="at most 1e\\+100 in absolute value"):
            found.learn(torch.full((1, 5), bad, dtype=torch.float64), rows[:1])
    assert pickle.dumps(found) == before


def test_a_pickle_continues_bit_for_bit_and_does_not_grow_with_samples() -> None:
    x, rows = blobs()
    found = taught(x[:40], rows[:40])
    copy = pickle.loads(pickle.dumps(found))
    size = len(pickle.dumps(copy))
    for one in (found, copy):
        one.learn(x[40:], rows[40:])
    assert torch.equal(found.scores(x, "oas", True), copy.scores(x, "oas", True))
    assert len(pickle.dumps(copy)) == size
