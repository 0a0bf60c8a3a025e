"""Features of blocks against a plain pass through the network, and their scale against its formula."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.backbones import Encoded, ViT
from prol.methods.closed_form.moments import LARGEST, require_usable, usable
from prol.methods.prol_plus.features import FEW, PRIOR, Scale


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scale_of(x: Tensor, blocks: int) -> Scale:
    """Of blocks of one width."""
    return Scale.of(x, [x.shape[1] // blocks] * blocks)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_they_are_what_plain_blocks_give(tiny: ViT, blocks: int) -> None:
    inputs, width = noise(3, 3, 16, 16), tiny.width
    tokens, expected = tiny.embed(inputs), torch.zeros(3, 0, dtype=torch.float64)
    for number, block in enumerate(tiny.model.blocks):
        tokens = block(tokens)
        if number >= tiny.depth - blocks:
            own = torch.zeros(3, 2 * width, dtype=torch.float64)
            own[:, 0::2], own[:, 1::2] = tokens[:, 0], tokens[:, 1:].mean(1)
            expected = torch.cat([expected, own], dim=1)
    feature, found = tiny.tapped(inputs, blocks)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(feature, tiny.model(inputs))
    assert found.shape[1] == sum(tiny.tap_widths[-blocks:])


def test_a_blocks_class_token_and_mean_patch_take_turns() -> None:
    encoded = Encoded(
        feature=torch.zeros(1, 2),
        class_token=torch.zeros(1, 2),
        class_taps=(torch.tensor([[1, 2]]), torch.tensor([[5, 6]])),
        patch_taps=(torch.tensor([[-1, -2]]), torch.tensor([[-5, -6]])),
    )
    assert encoded.interleaved().tolist() == [[1, -1, 2, -2, 5, -5, 6, -6]]


@given(count=st.integers(5, 30), width=st.integers(1, 3), blocks=st.integers(1, 3), seed=st.integers(0, 50))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_deviation_leans_towards_that_of_all_by_five_samples(count: int, width: int, blocks: int, seed: int) -> None:
    """The blocks do not matter where there are samples enough."""
    wide = width * blocks
    x = 4 + noise(count, wide, seed=seed) * torch.linspace(0.1, 3, wide).double()
    scale = scale_of(x, blocks)
    variances = [float((column - column.mean()).square().mean()) for column in x.T]
    typical = sum(variances) / wide
    expected = [((count * own + PRIOR * typical) / (count + PRIOR)) ** -0.5 for own in variances]
    torch.testing.assert_close(scale.mean, x.mean(0))
    torch.testing.assert_close(scale.inverse, torch.tensor(expected).double())
    torch.testing.assert_close(scale.apply(x), (x - x.mean(0)) * torch.tensor(expected).double())


@given(count=st.integers(1, 4), width=st.integers(2, 6), blocks=st.integers(1, 4), seed=st.integers(0, 50))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_of_fewer_than_five_samples_each_block_has_one_mean_and_one_deviation(
    count: int, width: int, blocks: int, seed: int
) -> None:
    x = noise(count, width * blocks, seed=seed) + torch.arange(blocks).double().repeat_interleave(width)
    scale = scale_of(x, blocks)
    for block in range(blocks):
        own = slice(block * width, (block + 1) * width)
        numbers = x[:, own].flatten()
        mean = float(numbers.sum()) / len(numbers)
        deviation = (sum((float(number) - mean) ** 2 for number in numbers) / len(numbers)) ** 0.5
        torch.testing.assert_close(scale.mean[own], torch.full((width,), mean).double())
        torch.testing.assert_close(scale.inverse[own], torch.full((width,), 1 / deviation).double())
    torch.testing.assert_close(scale.apply(x), (x - scale.mean) * scale.inverse)


@pytest.mark.parametrize(("count", "distinct"), [(1, 3), (FEW - 1, 3), (FEW, 60), (30, 60)])
def test_no_feature_of_a_few_samples_is_stored(count: int, distinct: int) -> None:
    assert FEW == 5
    x = noise(count, 60)
    scale = scale_of(x, 3)
    assert len(scale.mean.unique()) == len(scale.inverse.unique()) == distinct
    assert scale.mean.shape == scale.inverse.shape == (60,)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_images_that_differ_but_in_a_blocks_mean_and_variance_have_one_scale(count: int) -> None:
    """So the scale does not tell which of them was seen."""
    one, other = noise(count, 2, 30), noise(count, 2, 30, seed=1).exp()
    other = (other - other.mean((0, 2), keepdim=True)) / other.std((0, 2), correction=0, keepdim=True)
    other = other * one.std((0, 2), correction=0, keepdim=True) + one.mean((0, 2), keepdim=True)
    assert (one - other).abs().mean() > 0.1
    found, expected = (scale_of(x.flatten(1), 2) for x in (other, one))
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.inverse, expected.inverse, rtol=1e-12, atol=0)


def test_with_many_samples_every_feature_has_mean_zero_and_deviation_one() -> None:
    x = noise(5000, 3) * torch.tensor([0.1, 1.0, 20.0]).double() + torch.tensor([5.0, -3.0, 100.0]).double()
    found = scale_of(x, 1).apply(x)
    torch.testing.assert_close(found.mean(0), torch.zeros(3).double(), rtol=0, atol=1e-9)
    # the smallest has a share of what is typical: 5 samples of variance 134 among 5000 of 0.01
    torch.testing.assert_close(found.std(0)[1:], torch.ones(2).double(), rtol=0.1, atol=0)
    assert 0 < found.std(0)[0] < 0.5


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_unit_of_features_does_not_matter(count: int, blocks: int) -> None:
    x, probes = noise(count, 6), noise(9, 6, seed=1)
    plain, scaled = scale_of(x, blocks).apply(probes), scale_of(1000 * x + 3, blocks).apply(1000 * probes + 3)
    torch.testing.assert_close(plain, scaled)


@pytest.mark.parametrize("count", [5, 9])
def test_of_copies_the_spread_over_features_stands_for_that_over_images(count: int) -> None:
    x = noise(1, 50)
    scale = scale_of(x.repeat(count, 1), 2)
    torch.testing.assert_close(scale.mean, x[0])
    torch.testing.assert_close(scale.inverse, (PRIOR * x.var(correction=0) / (count + PRIOR)).rsqrt().expand(50))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 1e12, -1e12, 1e30])
def test_features_that_are_not_finite_or_huge_are_refused(value: float, dtype: torch.dtype) -> None:
    x = noise(2, 3).to(dtype)
    assert usable(x)
    require_usable(x)
    x[1, 2] = value
    assert not usable(x)
    with pytest.raises(ValueError, match=r"not finite .* which is not learnt"):
        require_usable(x)


@pytest.mark.parametrize("sign", [1, -1])
def test_of_the_largest_features_that_are_taken_squares_can_be_added_up_in_single_precision(sign: int) -> None:
    x = torch.full((1000, 1), sign * 0.999 * LARGEST)
    require_usable(x)
    assert (1e6 * x.T @ x).isfinite().all()


def test_a_feature_that_never_changes_has_a_finite_scale() -> None:
    x = torch.cat([noise(8, 3), torch.full((8, 1), 7.0).double()], dim=1)
    scale = scale_of(x, 2)
    assert scale.inverse.isfinite().all()
    torch.testing.assert_close(scale.apply(x)[:, 3], torch.zeros(8).double())


def test_a_block_that_is_the_same_everywhere_has_a_finite_scale() -> None:
    x = torch.cat([noise(2, 3), torch.full((2, 3), 7.0).double()], dim=1)
    scale = scale_of(x, 2)
    assert scale.inverse.isfinite().all()
    assert not scale.apply(x)[:, 3:].any()


@pytest.mark.parametrize("count", [3, 1000])
def test_float32_is_averaged_in_float64_and_stays_float32(count: int) -> None:
    x = (1e4 + noise(count, 4)).float()
    scale, exact = scale_of(x, 2), scale_of(x.double(), 2)
    assert scale.mean.dtype == scale.inverse.dtype == scale.apply(x).dtype == torch.float32
    torch.testing.assert_close(scale.mean, exact.mean.float(), rtol=1e-7, atol=0)
    torch.testing.assert_close(scale.inverse, exact.inverse.float())
