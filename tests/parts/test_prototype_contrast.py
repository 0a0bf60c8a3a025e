from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from prol.methods.replay.prototype_contrast import (
    chosen_pairs,
    class_means,
    pair_chances,
    prototype_contrast,
)
from torch import Tensor

CLASSES = 5


def unit(count: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, width, generator=random, dtype=torch.float64))


def slow_loss(plain: Tensor, viewed: Tensor, rows: list[int], temperature: float) -> float:
    kinds = sorted(set(rows))
    means = []
    for z in (plain, viewed):
        for kind in kinds:
            total = sum(z[i] for i, row in enumerate(rows) if row == kind)
            means.append(total / total.norm())
    whole, count = 0.0, len(means)
    for i in range(count):
        others = {j: math.exp(float(means[i] @ means[j]) / temperature) for j in range(count) if j != i}
        whole -= math.log(others[(i + len(kinds)) % count] / sum(others.values()))
    return whole / count


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_the_loss_is_its_formula_over_the_classes_that_are_there(rows: list[int], seed: int) -> None:
    plain, viewed = unit(len(rows), 6, seed).requires_grad_(), unit(len(rows), 6, seed + 100)
    (one, there), (other, _) = (class_means(z, torch.tensor(rows), CLASSES) for z in (plain, viewed))
    loss = prototype_contrast(one, other, there, 0.5)
    assert there.nonzero().flatten().tolist() == sorted(set(rows))
    assert float(loss.detach()) == pytest.approx(slow_loss(plain.detach(), viewed, rows, 0.5), abs=1e-9)
    (slope,) = torch.autograd.grad(loss, plain)
    assert bool(slope.isfinite().all())
    assert bool((slope.abs().sum(1) > 0).all()) == (len(set(rows)) > 1)


def test_close_classes_are_paired_more_often() -> None:
    means = F.normalize(torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [-1, 0]], dtype=torch.float64))
    there = torch.tensor([True, True, True, False])
    chances = pair_chances(means, there)
    pairs = [(0, 1), (0, 2), (1, 2)]
    shares = [math.exp(1 / float((means[i] - means[j]).norm())) for i, j in pairs]
    for (i, j), share in zip(pairs, shares, strict=True):
        assert float(chances[i, j] + chances[j, i]) == pytest.approx(share / sum(shares))
    assert float(chances.diagonal().sum()) == float(chances[3].sum()) == float(chances[:, 3].sum()) == 0


def test_means_that_coincide_or_are_not_known_have_finite_chances() -> None:
    means = torch.tensor([[1.0, 0], [1, 0], [0, 0], [0, 0]])
    chances = pair_chances(means, torch.ones(4, dtype=torch.bool))
    assert float(chances.sum()) == pytest.approx(1)
    assert float(chances[0, 1]) == pytest.approx(0.5)
    unknown = pair_chances(means[[0, 2, 3]], torch.ones(3, dtype=torch.bool))
    assert unknown.tolist() == [[0 if i == j else pytest.approx(1 / 6) for j in range(3)] for i in range(3)]


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.sampled_from([0.0, 1e-12, 0.3, 5.0]), min_size=9, max_size=9).filter(any),
    numbers=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
)
def test_only_pairs_with_a_chance_are_chosen(shares: list[float], numbers: tuple[float, float]) -> None:
    chances = torch.tensor(shares, dtype=torch.float64).view(3, 3)
    first, second = chosen_pairs(chances, torch.tensor([numbers], dtype=torch.float64))
    assert float(chances[first, second]) > 0


def test_pairs_are_chosen_as_often_as_their_chances_say() -> None:
    chances = torch.tensor([[0.0, 0.5, 0.1], [0.1, 0.0, 0.0], [0.05, 0.25, 0.0]], dtype=torch.float64)
    even = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    first, second = chosen_pairs(chances, torch.cartesian_prod(even, even))
    counts = torch.bincount(3 * first + second, minlength=9).view(3, 3) / 200**2
    torch.testing.assert_close(counts.double(), chances, atol=0.005, rtol=0)
