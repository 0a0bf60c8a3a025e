"""Choosing by key."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.prompts.prefixes import batch_vote, nearest_keys, pull


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
