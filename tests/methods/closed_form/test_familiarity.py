"""The relative Mahalanobis distance against one computed sample by sample."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prol.methods.closed_form.moments import Moments, Totals
from prol.methods.closed_form.solved import SHARE, RelativeDistance
from prol.state import State

CLASSES, WIDTH = 4, 7


def samples(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    rows = torch.arange(count) % CLASSES
    places = 3 * torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(5)).double()
    shape = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(6)).double()
    return places[rows] + torch.randn(count, WIDTH, generator=random).double() @ shape + 2, rows


def metric(deviations: Tensor, freedom: int) -> tuple[Tensor, Tensor]:
    """The inverse of the shrunk covariance, and what a fresh sample may expect."""
    covariance = deviations.T @ deviations / freedom
    inverse = torch.linalg.inv((1 - SHARE) * covariance + SHARE * covariance.diagonal().mean() * torch.eye(WIDTH))
    own = (inverse @ covariance).trace()
    return inverse, own / (1 - (1 - SHARE) * own / freedom)


def test_it_is_the_distance_to_all_less_that_to_the_nearest_class() -> None:
    x, rows = samples(60)
    x, rows = x[rows * 3 < torch.arange(60) + 1], rows[rows * 3 < torch.arange(60) + 1]  # not as many of each class
    asked, counts = samples(9, seed=1)[0], torch.bincount(rows)
    assert len(set(counts.tolist())) > 1
    means = torch.stack([x[rows == row].mean(0) for row in range(CLASSES)])
    within, fresh = metric(x - means[rows], len(x) - CLASSES)
    overall, fresh_of_all = metric(x - x.mean(0), len(x))
    apart = torch.stack([((asked - mean) @ within * (asked - mean)).sum(1) for mean in means], dim=1)
    nearest = (apart - fresh * (1 + 1 / counts)).amin(1)
    crowd = ((asked - x.mean(0)) @ overall * (asked - x.mean(0))).sum(1)
    found = RelativeDistance.of(Totals.of(x, rows, CLASSES + 1)).familiarity(asked)  # one class was only announced
    torch.testing.assert_close(found, (crowd - fresh_of_all - nearest) / fresh)


def test_it_hardly_moves_as_samples_come_in() -> None:
    """Ten times as many samples, in more dimensions than there were samples a class."""
    random = torch.Generator().manual_seed(1)
    places = torch.randn(10, 40, generator=random).double()

    def drawn(count: int) -> tuple[Tensor, Tensor]:
        rows = torch.arange(count) % 10
        return places[rows] + torch.randn(count, 40, generator=random).double(), rows

    fresh = drawn(2000)[0]
    early, late = (RelativeDistance.of(Totals.of(*drawn(count), 10)).familiarity(fresh) for count in (100, 3000))
    far = RelativeDistance.of(Totals.of(*drawn(100), 10)).familiarity(6 * fresh)
    assert abs(float(early.median() - late.median())) < late.std()
    assert far.amax() < early.amin()


def test_class_means_are_more_familiar_than_what_lies_between_them() -> None:
    x, rows = samples(200)
    means = torch.stack([x[rows == row].mean(0) for row in range(CLASSES)])
    distance = RelativeDistance.of(Totals.of(x, rows, CLASSES))
    assert distance.familiarity(means).amin() > distance.familiarity((means[:2].mean(0) + 5).unsqueeze(0)).item()


@pytest.mark.parametrize("count", [1, 3, CLASSES])
def test_one_sample_a_class_is_enough(count: int) -> None:
    x, rows = samples(count)
    distance = RelativeDistance.of(Totals.of(x, rows, CLASSES))
    away = x + 40 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(3)).double()
    assert distance.familiarity(x).isfinite().all()
    if count > 1:
        assert (distance.familiarity(x) > distance.familiarity(away)).all()


def test_copies_of_one_image_do_no_harm() -> None:
    x = torch.ones(30, WIDTH, dtype=torch.float64)
    assert RelativeDistance.of(Totals.of(x, torch.zeros(30).long(), 1)).familiarity(x + 1).isfinite().all()


@pytest.mark.parametrize(("first", "last"), [(0, 7), (0, 3), (2, 7), (3, 5), (4, 5)])
@pytest.mark.parametrize("height", [1, 2, 3, 10])
def test_moments_of_a_part_are_those_of_its_features_alone(first: int, last: int, height: int) -> None:
    x, rows = samples(20)
    state = State()
    moments = Moments(state, WIDTH, torch.float64, height)
    state.add_classes(CLASSES)
    moments.add(x, rows)
    expected, found = Totals.of(x[:, first:last], rows, CLASSES), moments.part(first, last)
    torch.testing.assert_close(found.gram, expected.gram)
    torch.testing.assert_close(found.sums, expected.sums)
    assert torch.equal(found.counts, expected.counts)
