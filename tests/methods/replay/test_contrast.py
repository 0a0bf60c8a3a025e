"""Supervised contrast against slow transcriptions of its formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.replay.contrast import class_contrast, likeness, new_contrast, pair_contrast, same_class

TEMPERATURE = 0.07


def unit(count: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, width, generator=random, dtype=torch.float64))


def slow_surprise(similarity: Tensor, i: int, j: int, without_self: bool) -> float:
    among = [k for k in range(similarity.shape[1]) if not (without_self and k == i)]
    total = sum(math.exp(float(similarity[i, k]) / TEMPERATURE) for k in among)
    return -math.log(math.exp(float(similarity[i, j]) / TEMPERATURE) / total)


def slow_class_contrast(similarity: Tensor, rows: list[int], others: list[int], without_self: bool) -> float:
    whole = 0.0
    for i, row in enumerate(rows):
        own = [j for j, other in enumerate(others) if other == row]
        if own:
            surprises = [slow_surprise(similarity, i, j, without_self) for j in own if not (without_self and j == i)]
            whole += sum(surprises) / len(own)
    return whole / len(rows)


def slow_new_contrast(similarity: Tensor, rows: list[int]) -> float:
    count = len(rows)
    pairs = sum(slow_surprise(similarity, i, (i + count // 2) % count, True) for i in range(count)) / count
    return pairs + 2 * slow_class_contrast(similarity, rows, rows, True)


def test_likeness_is_that_of_projections_and_of_columns_of_features() -> None:
    z, g = unit(5, 3, 0), unit(5, 7, 1)[:, 2:5]
    expected = [[float(z[i] @ z[j] + z[i] @ g[j]) for j in range(5)] for i in range(5)]
    torch.testing.assert_close(likeness(z, g), torch.tensor(expected, dtype=torch.float64))


halves = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(half=halves, seed=st.integers(0, 99))
def test_losses_are_their_formulas(half: list[int], seed: int) -> None:
    rows = [*half, *half]
    z, g = unit(len(rows), 4, seed), 0.5 * unit(len(rows), 4, seed + 100)
    similarity, same = likeness(z, g), same_class(torch.tensor(rows))
    found = new_contrast(similarity, same, TEMPERATURE)
    assert float(found) == pytest.approx(slow_new_contrast(similarity, rows), abs=1e-9)
    for without_self in (False, True):
        found = class_contrast(similarity, same, TEMPERATURE, without_self)
        assert float(found) == pytest.approx(slow_class_contrast(similarity, rows, rows, without_self), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(rows=halves, others=halves)
def test_two_batches_may_be_contrasted(rows: list[int], others: list[int]) -> None:
    similarity = unit(len(rows), 4, 1) @ unit(len(others), 4, 2).T
    found = class_contrast(similarity, same_class(torch.tensor(rows), torch.tensor(others)), TEMPERATURE)
    assert float(found) == pytest.approx(slow_class_contrast(similarity, rows, others, False), abs=1e-9)


def test_gradients_are_finite_and_right_where_a_sample_is_left_out() -> None:
    z = unit(6, 3, 5).requires_grad_()
    same = same_class(torch.tensor([0, 1, 2, 0, 1, 2]))
    assert torch.autograd.gradcheck(lambda x: new_contrast(x @ x.T, same, 0.5), z)


def test_one_image_and_its_view_have_nothing_to_be_told_from() -> None:
    z = unit(2, 3, 7).requires_grad_()
    loss = new_contrast(z @ z.T, same_class(torch.tensor([4, 4])), TEMPERATURE)
    (slope,) = torch.autograd.grad(loss, z)
    assert float(loss.detach()) == 0
    assert torch.equal(slope, torch.zeros_like(slope))


def test_the_pair_is_half_a_batch_away() -> None:
    similarity = torch.eye(4, dtype=torch.float64).roll(2, 1)
    assert float(pair_contrast(similarity, 0.01)) == pytest.approx(0, abs=1e-12)
    assert float(pair_contrast(similarity.roll(1, 1), 0.01)) == pytest.approx(100)
