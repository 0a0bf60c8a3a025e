"""Prefixes from tables and from mixtures of components."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.prompts.prefixes import by_block, component_weights, mixed


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_blocks_get_their_own_keys_and_values_for_every_sample() -> None:
    table = drawn(3, 2, 2, 4, 5, 6)
    found = by_block(table, first_block=7)
    assert list(found) == [7, 8]
    for i in range(2):
        keys, values = found[7 + i]
        for sample in range(3):
            assert torch.equal(keys[sample], table[sample, i, 0])
            assert torch.equal(values[sample], table[sample, i, 1])


def test_a_components_weight_is_the_cosine_of_the_attended_query_to_its_key() -> None:
    query, attention, keys = drawn(3, 8), drawn(4, 2, 8, seed=1), drawn(4, 2, 8, seed=2)
    weights = component_weights(query, attention, keys)
    assert weights.shape == (3, 2, 4)
    for sample in range(3):
        for block in range(2):
            for j in range(4):
                expected = F.cosine_similarity(query[sample] * attention[j, block], keys[j, block], dim=0)
                torch.testing.assert_close(weights[sample, block, j], expected)


def test_an_attention_vector_of_zeros_gives_weight_zero_and_finite_gradients() -> None:
    attention = torch.zeros(1, 1, 8, requires_grad=True)
    weight = component_weights(torch.ones(2, 8), attention, torch.ones(1, 1, 8))
    weight.sum().backward()
    assert not weight.any()
    assert attention.grad is not None
    assert attention.grad.isfinite().all()


def test_a_mixture_sums_components_of_its_own_block_by_weight() -> None:
    weights, components = drawn(3, 2, 4), drawn(4, 2, 2, 3, 5, 6, seed=1)
    found = mixed(weights, components)
    assert found.shape == (3, 2, 2, 3, 5, 6)
    for sample in range(3):
        for block in range(2):
            expected = sum(weights[sample, block, j] * components[j, block] for j in range(4))
            torch.testing.assert_close(found[sample, block], expected)
