"""A class taken out of shared second moments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prol.methods.closed_form.moments import Moments, spread_share, take_out_of_moments
from prol.methods.closed_form.solvers import (
    forget_least_squares,
    recursive_least_squares,
    take_out_of_inverse,
    within_classes,
)
from prol.state import State

ROWS = torch.tensor([0] * 7 + [1] * 5 + [2] * 1 + [3] * 9)


def samples(seed: int = 0) -> Tensor:
    return torch.randn(len(ROWS), 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def summed(x: Tensor, rows: Tensor) -> Moments:
    state = State()
    moments = Moments(state, 6, torch.float64, height=4)
    state.add_classes(4)
    moments.add(x, rows)
    return moments


def taken_out(moments: Moments, row: int) -> Moments:
    tensors = {f"m/{name}": tensor.clone() for name, tensor in moments.tensors().items()}
    assert take_out_of_moments(tensors, "m/", row) == int(moments.counts.rows[row])
    for name in ("m/sums", "m/counts"):
        tensors[name][row] = 0
    left = summed(torch.zeros(0, 6), ROWS[:0])
    for name, tensor in left.tensors().items():
        tensor.copy_(tensors[f"m/{name}"])
    return left


def test_the_covariance_stays_and_the_mean_of_the_class_is_gone_from_the_matrix() -> None:
    moments = summed(samples() + 5 * torch.nn.functional.one_hot(ROWS, 6), ROWS)
    before, after = moments.totals(), taken_out(moments, 1).totals()
    scatter = (within_classes(totals)[1] * totals.counts.sum() for totals in (before, after))
    whole, left = scatter
    torch.testing.assert_close(left, whole * (1 - 4 / 18))  # 22 samples of 4 classes: 18 degrees of freedom, 4 of them
    means = after.sums.T @ (after.sums / after.counts.clamp(min=1).unsqueeze(1))
    torch.testing.assert_close(after.gram, means + left)
    assert float(torch.linalg.eigvalsh(after.gram).min()) > 0


def test_a_class_of_one_sample_goes_without_a_trace() -> None:
    x = samples()
    after = taken_out(summed(x, ROWS), 2).totals()
    torch.testing.assert_close(after.gram, summed(x[ROWS != 2], ROWS[ROWS != 2]).totals().gram)


def test_nothing_is_left_when_the_last_class_goes() -> None:
    moments = summed(samples(), ROWS)
    for row in (3, 0, 2, 1):
        moments = taken_out(moments, row)
    assert float(moments.totals().gram.abs().max()) < 1e-12


def test_shares_of_the_spread() -> None:
    assert spread_share(torch.tensor([1.0, 1.0]), 0) == 0.0
    assert spread_share(torch.tensor([5.0, 1.0, 0.0]), 0) == 1.0
    assert spread_share(torch.tensor([5.0, 9.0]), 0) == pytest.approx(1 / 3)


def solved(x: Tensor, rows: Tensor, ridge: float = 0.5) -> tuple[Tensor, Tensor]:
    totals = summed(x, rows).totals()
    inverse = torch.linalg.inv(totals.gram + ridge * torch.eye(6, dtype=torch.float64))
    return inverse, totals.sums @ inverse


def test_inverses_are_changed_as_the_moments_are() -> None:
    x = samples()
    inverse, weight = solved(x, ROWS)
    take_out_of_inverse(inverse, weight, torch.bincount(ROWS).double(), 1, 0.5)
    totals = taken_out(summed(x, ROWS), 1).totals()
    expected = torch.linalg.inv(totals.gram + 0.5 * torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(inverse, expected)
    others = [0, 2, 3]
    torch.testing.assert_close(weight[others], (totals.sums @ expected)[others])


def test_forgetting_undoes_recursive_least_squares() -> None:
    x, y = samples(), torch.nn.functional.one_hot(ROWS, 4).double()
    inverse, weight = solved(x[:15], ROWS[:15])
    expected = inverse.clone(), weight.clone()
    recursive_least_squares(inverse, weight, x[15:], y[15:])
    forget_least_squares(inverse, weight, x[15:], y[15:])
    torch.testing.assert_close((inverse, weight), expected)


def test_samples_that_were_never_there_are_refused() -> None:
    x, y = samples(), torch.nn.functional.one_hot(ROWS, 4).double()
    inverse, weight = solved(x[:5], ROWS[:5])
    before = inverse.clone(), weight.clone()
    with pytest.raises(ValueError, match="were not learnt"):
        forget_least_squares(inverse, weight, 9 * x[15:16], y[15:16])
    assert torch.equal(inverse, before[0])
    assert torch.equal(weight, before[1])
    with pytest.raises(ValueError, match="were not learnt"):
        summed(x, ROWS).subtract(2 * x, ROWS)
    summed(x, ROWS).subtract(x, ROWS)
