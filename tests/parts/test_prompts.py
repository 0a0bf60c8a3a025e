"""The pure functions behind the prompts, against explicit loops."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.prol.learner import prompts

shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(shape=shapes, seed=st.integers(0, 99), biased=st.booleans())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_one_convolution_equals_explicit_loops_with_zero_padding(
    shape: tuple[int, int, int, int], seed: int, biased: bool
) -> None:
    batch, blocks, heads, d = shape
    inputs, weight = drawn(seed, batch, d), drawn(seed + 1, blocks, 2, heads, 3)
    bias = drawn(seed + 2, blocks, 2, heads) if biased else None
    expected = torch.zeros(batch, blocks, 2, heads, d, dtype=torch.float64)
    for index in torch.cartesian_prod(*(torch.arange(n) for n in expected.shape)).tolist():
        b, block, kind, head, j = index
        for tap in range(3):
            source = j + tap - 1
            if 0 <= source < d:
                expected[tuple(index)] += weight[block, kind, head, tap] * inputs[b, source]
        if bias is not None:
            expected[tuple(index)] += bias[block, kind, head]
    torch.testing.assert_close(prompts.generate(inputs, weight, bias), expected, rtol=0, atol=1e-12)


def test_the_generators_input_is_every_hth_coordinate_from_the_first() -> None:
    query = torch.arange(24.0).view(2, 12)
    assert prompts.generator_input(query, 4).tolist() == [[0, 4, 8], [12, 16, 20]]


@given(shape=shapes, length=st.integers(1, 6), seed=st.integers(0, 99), biased=st.booleans())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_folding_the_layer_sum_into_the_generator_equals_summing_own_prompts(
    shape: tuple[int, int, int, int], length: int, seed: int, biased: bool
) -> None:
    batch, blocks, heads, d = shape
    inputs, factor = drawn(seed, batch, d), drawn(seed + 1, batch)
    weight = drawn(seed + 2, blocks, 2, heads, 3)
    bias = drawn(seed + 3, blocks, 2, heads) if biased else None
    scaler, shifter = drawn(seed + 4, batch, 2, length), drawn(seed + 5, batch, 2, length)
    own = prompts.assemble(prompts.generate(inputs, weight, bias), factor, scaler, shifter, length, layer_sum=False)
    summed = own.clone()
    summed[:, 1:] += own[:, :-1]
    folded = prompts.sum_with_previous_block(weight, bias)
    inserted = prompts.assemble(prompts.generate(inputs, *folded), factor, scaler, shifter, length, layer_sum=True)
    torch.testing.assert_close(inserted, summed, rtol=0, atol=1e-12)


def test_positions_are_u_and_then_scaled_and_shifted_u() -> None:
    generated, factor = drawn(0, 2, 1, 2, 3, 4), torch.tensor([2.0, -0.5], dtype=torch.float64)
    scaler, shifter = drawn(1, 2, 2, 3), drawn(2, 2, 2, 3)
    made = prompts.assemble(generated, factor, scaler, shifter, 3, layer_sum=False)
    assert made.shape == (2, 1, 2, 3, 3, 4)
    for sample in range(2):
        for kind in range(2):
            u = factor[sample] * generated[sample, 0, kind]
            torch.testing.assert_close(made[sample, 0, kind, :, 0], u)
            for position in (1, 2):
                expected = scaler[sample, kind, position] * u + shifter[sample, kind, position]
                torch.testing.assert_close(made[sample, 0, kind, :, position], expected)


def test_the_first_column_of_scalers_and_shifters_is_not_used() -> None:
    generated, factor = drawn(0, 2, 3, 2, 3, 4), drawn(1, 2)
    scaler, shifter = drawn(2, 2, 2, 3).requires_grad_(), drawn(3, 2, 2, 3).requires_grad_()
    made = prompts.assemble(generated, factor, scaler, shifter, 3, layer_sum=True)
    of_scaler, of_shifter = torch.autograd.grad((made**2).sum(), [scaler, shifter])
    for gradient in (of_scaler, of_shifter):
        assert torch.equal(gradient[..., 0], torch.zeros(2, 2).double())
        assert gradient[..., 1:].abs().min() > 0
