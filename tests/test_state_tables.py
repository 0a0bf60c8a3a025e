"""Tables that grow by doubling."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prol.tables import Amount, Table

some = settings(max_examples=40, deadline=None, derandomize=True)


def table(*shape: int, capacity: int = 0) -> Table:
    return Table(shape, torch.device("cpu"), torch.float64, capacity)


@given(sizes=st.lists(st.integers(0, 9), max_size=12))
@some
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


def test_buffers_double_so_that_few_appends_move_them_and_each_move_is_counted() -> None:
    grown, place = table(3), 0
    for _ in range(1000):
        before = grown.moves
        grown.append(torch.zeros(1, 3))
        assert (grown.moves > before) == (grown.rows.data_ptr() != place)
        place = grown.rows.data_ptr()
    assert grown.moves <= 11


@pytest.mark.parametrize("way", ["at once", "one by one"])
def test_the_room_of_a_buffer_depends_on_the_rows_alone(way: str) -> None:
    grown = table(1, capacity=3)
    for rows in torch.ones(7, 1).split(7) if way == "at once" else torch.ones(7, 1).split(1):
        grown.append(rows)
    assert len(grown.buffer) == 12
    assert not grown.buffer[7:].any()


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


def test_a_replaced_table_grows_on_from_there_with_zeros_behind_it() -> None:
    grown = table(1)
    grown.append(torch.ones(5, 1))
    grown.replace(torch.tensor([[1.0], [2.0]]))
    assert grown.rows.tolist() == [[1], [2]]
    assert not grown.buffer[2:].any()
    grown.append(torch.tensor([[3.0]]))
    assert grown.rows.tolist() == [[1], [2], [3]]
    assert grown.rows.dtype == torch.float64


def test_a_table_may_be_replaced_by_one_of_another_width_and_truncated() -> None:
    grown = table(3)
    grown.append(torch.ones(4, 3))
    moves = grown.moves
    grown.replace(torch.full((2, 2), 7.0))
    assert grown.rows.tolist() == [[7, 7], [7, 7]]
    assert grown.moves > moves
    grown.truncate(1)
    assert grown.rows.tolist() == [[7, 7]]
    assert not grown.buffer[1:].any()


def test_changes_are_added_to_their_rows() -> None:
    grown = table(2)
    grown.append(torch.zeros(3, 2))
    rows, changes = torch.tensor([2, 0, 2]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    grown.add(rows, changes)
    assert grown.rows.tolist() == [[3, 4], [0, 0], [6, 8]]
    grown.add(rows, changes, times=-1)
    assert not grown.rows.any()
    grown.add_where(rows, changes, torch.tensor([True, False, False]))
    assert grown.rows.tolist() == [[0, 0], [0, 0], [1, 2]]
    grown.add_where(rows, torch.full((3, 2), torch.nan), torch.tensor([False] * 3))
    assert grown.rows.isfinite().all()


def test_an_amount_counts_numbers_and_bytes() -> None:
    assert Amount.of(torch.zeros(2, 3), torch.zeros(4, dtype=torch.float64)) == Amount(10, 56)
