"""New vectors at right angles to old ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prol.methods.prompts.prefixes import orthogonality_gap, orthonormal_rows


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
def test_any_number_of_rows_can_be_had(count: int) -> None:
    new = made(count, drawn(2, 6))
    assert new.shape == (count, 6)
    torch.testing.assert_close(new.norm(dim=1), torch.ones(count).double())


def test_the_gap_is_zero_for_orthonormal_rows_and_the_mean_square_otherwise() -> None:
    rows = torch.stack([made(4, drawn(0, 6)), drawn(4, 6)])
    expected = (rows[1] @ rows[1].T - torch.eye(4).double()).square().mean()
    torch.testing.assert_close(orthogonality_gap(rows), expected)
