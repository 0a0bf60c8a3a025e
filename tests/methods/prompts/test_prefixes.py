"""Prefixes from tables and mixtures, prompts chosen by key, and new vectors orthogonal to old ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.prompts.prefixes import (
    batch_vote,
    by_block,
    component_weights,
    mixed,
    nearest_keys,
    orthogonality_gap,
    orthonormal_rows,
    pull,
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_nearest_keys_are_those_of_the_highest_cosine_whatever_their_length() -> None:
    keys, query = (
        torch.tensor([[9.0, 9.0], [0.1, 0.0], [0.0, 5.0], [-7.0, 0.0]]),
        torch.tensor([[3.0, 0.3], [0.0, 0.2]]),
    )
    assert nearest_keys(query, keys, 2).tolist() == [[1, 0], [2, 0]]
    assert nearest_keys(query, keys).tolist() == [[1], [2]]


def test_each_sample_is_matched_for_itself() -> None:
    keys, query = drawn(8, 5), drawn(6, 5, seed=1)
    together = nearest_keys(query, keys, 3)
    assert torch.equal(together, torch.cat([nearest_keys(query[i : i + 1], keys, 3) for i in range(6)]))
    assert len({tuple(row) for row in together.tolist()}) > 1


def test_a_vote_gives_everyone_what_most_chose() -> None:
    rows = torch.tensor([[0, 1], [4, 1], [4, 2], [1, 4]])
    assert batch_vote(rows, 5).tolist() == [[1, 4]] * 4


def test_of_equal_votes_the_lower_row_wins() -> None:
    assert batch_vote(torch.tensor([[3], [1], [3], [1], [2]]), 5).tolist() == [[1]] * 5


def test_the_pull_is_the_sum_over_a_samples_keys_and_the_mean_over_samples() -> None:
    query, chosen = drawn(4, 5), drawn(4, 3, 5, seed=1)
    expected = sum(F.cosine_similarity(query[i], chosen[i, j], dim=0) for i in range(4) for j in range(3)) / 4
    torch.testing.assert_close(pull(query, chosen), expected)


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


def made(count: int, old: Tensor, seed: int = 0) -> Tensor:
    return orthonormal_rows(count, old, torch.Generator().manual_seed(seed))


def is_identity(products: Tensor) -> bool:
    return bool(torch.allclose(products, torch.eye(len(products)).double(), atol=1e-12))


def test_new_rows_are_at_right_angles_to_each_other_and_to_old_rows_that_are_not() -> None:
    old = drawn(3, 10) + 1
    new = made(4, old)
    assert is_identity(new @ new.T)
    assert (new @ old.T).abs().max() < 1e-12


def test_old_rows_may_repeat_themselves() -> None:
    old = drawn(1, 10).repeat(3, 1)
    new = made(4, old)
    assert is_identity(new @ new.T)
    assert (new @ old.T).abs().max() < 1e-12


def test_without_old_rows_they_are_orthonormal_and_random() -> None:
    none = torch.zeros(0, 6).double()
    assert is_identity(made(6, none) @ made(6, none).T)
    assert torch.equal(made(6, none), made(6, none))
    assert not torch.allclose(made(6, none), made(6, none, seed=1))


def test_without_room_the_newest_old_rows_count() -> None:
    old = drawn(9, 6)
    new = made(2, old)
    assert is_identity(new @ new.T)
    assert (new @ old[-4:].T).abs().max() < 1e-12


@pytest.mark.parametrize("count", [0, 6, 7, 15])
def test_any_number_of_rows_is_possible(count: int) -> None:
    new = made(count, drawn(2, 6))
    assert new.shape == (count, 6)
    torch.testing.assert_close(new.norm(dim=1), torch.ones(count).double())


def test_the_gap_is_zero_for_orthonormal_rows_and_the_mean_square_otherwise() -> None:
    rows = torch.stack([made(4, drawn(0, 6)), drawn(4, 6)])
    expected = (rows[1] @ rows[1].T - torch.eye(4).double()).square().mean()
    torch.testing.assert_close(orthogonality_gap(rows), expected)
