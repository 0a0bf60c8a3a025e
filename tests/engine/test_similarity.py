"""Cosines, and products of few rows with many."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prol.engine.similarity import (
    STRIP,
    _in_columns,
    _in_strips,
    cosine_pairs,
    cosine_to_all,
    few_by_many,
    unit,
)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_unit_rows_have_length_one_and_a_row_of_zeros_stays_zero() -> None:
    rows = drawn(4, 8) * 100
    rows[2] = 0
    lengths = unit(rows).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1.0, 1, 0, 1]).double())


def test_a_nearly_empty_row_is_divided_by_a_millionth_at_least() -> None:
    row = torch.full((1, 4), 1e-9, dtype=torch.float64)
    torch.testing.assert_close(unit(row), row * 1e6)


def test_a_row_of_zeros_has_a_finite_gradient() -> None:
    row = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    unit(row).sum().backward()
    assert row.grad is not None
    assert row.grad.isfinite().all()


def test_cosines_are_torchs() -> None:
    a, b = drawn(3, 8), drawn(5, 8)
    expected = F.cosine_similarity(a[:, None], b[None], dim=-1)
    torch.testing.assert_close(cosine_to_all(a, b), expected)
    torch.testing.assert_close(cosine_pairs(a, b[:3]), expected.diagonal())


@pytest.mark.parametrize("product", [few_by_many, _in_columns, _in_strips])
@pytest.mark.parametrize(("table", "width"), [(5, 16), (2 * STRIP, 24), (STRIP + 3, 7), (3 * STRIP, 7)])
def test_products_in_parts_are_the_product_and_have_its_gradient(product: Any, table: int, width: int) -> None:
    random = torch.Generator().manual_seed(0)
    few = torch.randn(3, width, generator=random, dtype=torch.float64).requires_grad_()
    many = torch.randn(table, width, generator=random, dtype=torch.float64)
    above = torch.randn(3, table, generator=random, dtype=torch.float64)
    found = product(few, many)
    torch.testing.assert_close(found, few @ many.T)
    torch.testing.assert_close(torch.autograd.grad(found, few, above)[0], above @ many)
