"""Class Gaussians against numpy's moments, and the head aligned on draws from them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.adapters.class_statistics import ClassGaussians, Covariance, aligned_head
from prol.state import State

WIDTH = 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(covariance: Covariance, classes: int) -> ClassGaussians:
    state = State()
    gaussians = ClassGaussians(state, WIDTH, covariance, torch.float64)
    state.add_classes(classes)
    return gaussians


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@given(
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=25),
    cuts=st.sets(st.integers(1, 24), max_size=8),
    shift=st.sampled_from([0.0, 100.0]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_moments_are_numpys_for_any_chunking(
    covariance: Covariance, labels: list[int], cuts: set[int], shift: float
) -> None:
    features, rows = drawn(len(labels), WIDTH, seed=len(labels)) + shift, torch.tensor(labels)
    gaussians = make(covariance, 4)
    ends = [0, *sorted(cut for cut in cuts if cut < len(labels)), len(labels)]
    for first, end in pairwise(ends):
        gaussians.add(features[first:end], rows[first:end])
    assert not gaussians.measured()[3]
    for row in set(labels):
        own = features[rows == row].numpy()
        assert gaussians.counts.rows[row] == len(own)
        np.testing.assert_allclose(gaussians.means.rows[row].numpy(), own.mean(0), atol=1e-10)
        expected = (own - own.mean(0)).T @ (own - own.mean(0))
        found = gaussians.scatter.rows[row].numpy()
        np.testing.assert_allclose(found, expected if covariance == "full" else np.diag(expected), atol=1e-9)
        spread = gaussians.spread(torch.tensor([row]))[0]
        assumed = expected / max(len(own) - 1, 1) + 1e-4 * np.eye(WIDTH)
        if covariance == "full":
            np.testing.assert_allclose((spread @ spread.T).numpy(), assumed, atol=1e-9)
        else:
            np.testing.assert_allclose(spread.square().numpy(), np.diag(assumed), atol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_nothing_is_taken_from_a_step_that_is_not_valid(covariance: Covariance) -> None:
    gaussians, plain, rows = make(covariance, 3), make(covariance, 3), torch.tensor([2, 0, 2])
    bad = torch.full((3, WIDTH), torch.nan)
    for seed in (1, 2):
        gaussians.add(bad, rows, torch.tensor(False))
        gaussians.add(drawn(3, WIDTH, seed=seed), rows, torch.tensor(True))
        plain.add(drawn(3, WIDTH, seed=seed), rows)
    gaussians.add(bad, torch.tensor([0, 1, 2]), torch.tensor(False))
    for name in ("counts", "means", "scatter"):
        assert torch.equal(getattr(gaussians, name).rows, getattr(plain, name).rows)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_draws_have_the_moments_of_their_class(covariance: Covariance) -> None:
    gaussians = make(covariance, 3)
    mixing = torch.tensor([[1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [0.3, 0.0, 0.1]], dtype=torch.float64)
    samples = drawn(50, WIDTH) @ mixing + torch.tensor([5.0, 0.0, -1.0], dtype=torch.float64)
    gaussians.add(samples, torch.full((50,), 1))
    classes = torch.tensor([1])
    spread, random = gaussians.spread(classes), torch.Generator().manual_seed(0)
    found = gaussians.draw(classes, spread, 20_000, random)[0]
    assert found.shape == (20_000, WIDTH)
    torch.testing.assert_close(found.mean(0), samples.mean(0), rtol=0, atol=0.05)
    expected = samples.T.cov() if covariance == "full" else samples.T.cov().diagonal().diag()
    torch.testing.assert_close(found.T.cov(), expected, rtol=0.05, atol=0.05)


def three_classes() -> tuple[ClassGaussians, Tensor]:
    """Classes 0, 1 and 3 apart from each other, none of class 2; samples of the three."""
    gaussians = make("diagonal", 4)
    rows = torch.tensor([0, 1, 3]).repeat(20)
    features = drawn(60, WIDTH) * 0.3 + 3 * F.one_hot(torch.tensor([0, 1, 2]).repeat(20)).double()
    gaussians.add(features, rows)
    return gaussians, features


def align(
    gaussians: ClassGaussians, weight: Tensor, bias: Tensor, seed: int = 0, epochs: int = 5
) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return aligned_head(weight, bias, gaussians, epochs=epochs, draws=20, lr=0.1, random=random)


def test_an_aligned_head_knows_all_classes_again_and_the_given_one_stays() -> None:
    gaussians, features = three_classes()
    weight, bias = drawn(4, WIDTH, seed=1), drawn(4, seed=2)
    weight[3] *= 20  # a row that wins almost always
    kept = weight.clone(), bias.clone()
    before = F.linear(features, weight, bias)[:, [0, 1, 3]].argmax(1)
    found = align(gaussians, weight, bias)
    after = F.linear(features, *found)[:, [0, 1, 3]].argmax(1)
    target = torch.tensor([0, 1, 2]).repeat(20)
    assert (before == target).double().mean() < 0.7 < 0.95 < (after == target).double().mean()
    assert torch.equal(weight, kept[0])
    assert torch.equal(bias, kept[1])
    assert torch.equal(found[0][2], weight[2])
    assert torch.equal(found[1][2], bias[2])


def test_alignment_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    gaussians, weight, bias = three_classes()[0], drawn(4, WIDTH, seed=1), drawn(4, seed=2)
    one, same, other = (align(gaussians, weight, bias, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_one_step_of_alignment_is_a_step_down_the_cross_entropy() -> None:
    gaussians = make("diagonal", 2)
    gaussians.add(drawn(8, WIDTH), torch.tensor([0, 1]).repeat(4))
    weight, bias = drawn(2, WIDTH, seed=1), drawn(2, seed=2)
    random, classes = torch.Generator().manual_seed(0), torch.tensor([0, 1])
    features = gaussians.draw(classes, gaussians.spread(classes), 3, random).flatten(0, 1)
    order = torch.randperm(6, generator=random)
    leaves = [weight.clone().requires_grad_(), bias.clone().requires_grad_()]
    optimiser = torch.optim.SGD(leaves, lr=0.1, momentum=0.9, weight_decay=5e-4)
    for batch in order.split(3):
        optimiser.zero_grad()
        F.cross_entropy(F.linear(features[batch], *leaves), batch // 3).backward()
        optimiser.step()
    found = aligned_head(weight, bias, gaussians, epochs=1, draws=3, lr=0.1, random=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found[0], leaves[0].detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], leaves[1].detach(), rtol=0, atol=1e-12)
