"""Random layers: drawn from a seed alone, and the maps they stand for."""

from __future__ import annotations

import math

import pytest
import torch

from prol.methods.closed_form.random_features import (
    fourier_features,
    gamma_by_variance,
    normal,
    own_generator,
    relu_features,
    sigmoid_features,
    uniform,
)

CPU = torch.device("cpu")
X = torch.randn(6, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_the_same_seed_draws_the_same_layer() -> None:
    one, other, third = (normal((8, 5), own_generator(seed), CPU, torch.float64) for seed in (4, 4, 5))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def test_a_layer_is_the_same_in_every_precision_up_to_rounding() -> None:
    single, double = (normal((8, 5), own_generator(1), CPU, dtype) for dtype in (torch.float32, torch.float64))
    assert single.dtype == torch.float32
    assert torch.equal(single, double.float())


def test_a_layer_shares_no_numbers_with_what_its_learner_draws() -> None:
    learners = torch.empty(100, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(7))
    layer = normal((100,), own_generator(7), CPU, torch.float64)
    assert not torch.isclose(learners, layer).any()


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_every_seed_of_a_learner_will_do(seed: int) -> None:
    assert normal((2, 2), own_generator(seed), CPU, torch.float64).isfinite().all()


def test_shapes_alone_need_no_numbers() -> None:
    meta = torch.device("meta")
    assert normal((768, 10_000), own_generator(0), meta, torch.float32).is_meta
    assert uniform((768, 10_000), 0, 1, own_generator(0), meta, torch.float32).is_meta


def test_uniform_numbers_keep_to_their_bounds() -> None:
    found = uniform((1000,), -0.25, 0.25, own_generator(0), CPU, torch.float64)
    assert found.abs().max() <= 0.25
    assert abs(float(found.mean())) < 0.02


def test_relu_and_sigmoid_are_what_they_say() -> None:
    weight = normal((8, 5), own_generator(0), CPU, torch.float64)
    torch.testing.assert_close(relu_features(X, weight), torch.clamp(X @ weight, min=0))
    torch.testing.assert_close(sigmoid_features(X, weight), 1 / (1 + torch.exp(-(X @ weight))))


def test_products_of_fourier_features_are_the_gaussian_kernel() -> None:
    random, gamma = own_generator(0), 0.05
    weight = normal((8, 100_000), random, CPU, torch.float64)
    phase = uniform((100_000,), 0, 2 * math.pi, random, CPU, torch.float64)
    features = fourier_features(X, weight, phase, gamma)
    kernel = torch.exp(-gamma * torch.cdist(X, X).square())
    torch.testing.assert_close(features @ features.T, kernel, rtol=0, atol=0.02)


def test_gamma_comes_from_the_variance_of_all_entries() -> None:
    assert gamma_by_variance(X) == pytest.approx(1 / (8 * float(X.numpy().var())))
    assert gamma_by_variance(X[:1]) == pytest.approx(1 / (8 * float(X[:1].numpy().var())))
    assert gamma_by_variance(torch.ones(3, 8)) == 1 / 8
