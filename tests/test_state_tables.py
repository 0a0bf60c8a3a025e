"""Tables that grow by doubling."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prol.state import Table


def table(*shape: int) -> Table:
    return Table(shape, torch.device("cpu"), torch.float64)


@given(sizes=st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_rows_are_everything_appended_in_order(sizes: list[int]) -> None:
    grown, parts = table(2), [torch.zeros(0, 2, dtype=torch.float64)]
    for number, size in enumerate(sizes):
        parts.append(torch.full((size, 2), float(number), dtype=torch.float64))
        grown.append(parts[-1])
        assert torch.equal(grown.rows, torch.cat(parts))
        assert grown.count == len(grown.rows)


def test_a_new_table_is_empty() -> None:
    assert table(4, 2).rows.shape == (0, 4, 2)
    assert table().rows.shape == (0,)


def test_buffers_double_so_that_few_appends_move_them() -> None:
    grown, moves, place = table(3), 0, 0
    for _ in range(1000):
        grown.append(torch.zeros(1, 3))
        moves += grown.rows.data_ptr() != place
        place = grown.rows.data_ptr()
    assert moves <= 11


def test_rows_are_a_view_that_writes_through() -> None:
    grown = table(2)
    grown.append(torch.zeros(3, 2))
    grown.rows[1] = 5.0
    assert grown.rows.tolist() == [[0, 0], [5, 5], [0, 0]]


def test_appended_rows_take_the_tables_type_and_are_copies() -> None:
    grown, rows = table(2), torch.ones(1, 2, dtype=torch.float32)
    grown.append(rows)
    rows.zero_()
    assert grown.rows.dtype == torch.float64
    assert grown.rows.tolist() == [[1, 1]]


def test_a_replaced_table_grows_on_from_there() -> None:
    grown = table(1)
    grown.append(torch.zeros(5, 1))
    grown.replace(torch.tensor([[1.0], [2.0]]))
    assert grown.rows.tolist() == [[1], [2]]
    grown.append(torch.tensor([[3.0]]))
    assert grown.rows.tolist() == [[1], [2], [3]]
    assert grown.rows.dtype == torch.float64
