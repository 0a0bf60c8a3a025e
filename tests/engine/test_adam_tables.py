"""Adam's buffers: places for rows in play, which grow seldom, and moments of many parts in two long tensors."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prol.engine.adam_tables import LEAST, AdamMoments, RowsInPlay

LENGTH = 300
chunks = st.lists(st.lists(st.integers(0, LENGTH - 1), max_size=40), max_size=12)


def fresh() -> RowsInPlay:
    return RowsInPlay(torch.device("cpu"))


@given(chunks=chunks)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_each_row_has_one_place_whatever_comes_twice(chunks: list[list[int]]) -> None:
    in_play, known = fresh(), dict[int, int]()
    for rows in chunks:
        in_play.reserve(len(rows), LENGTH)
        for row, place in zip(rows, in_play.places(torch.tensor(rows, dtype=torch.long)).tolist(), strict=True):
            assert known.setdefault(row, place) == place
    assert sorted(known.values()) == list(range(len(known)))
    assert in_play.taken().tolist() == sorted(known, key=lambda row: known[row])


@given(chunks=chunks, more=st.lists(st.integers(0, LENGTH - 1), max_size=40))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_what_was_taken_can_be_taken_over(chunks: list[list[int]], more: list[int]) -> None:
    in_play, other = fresh(), fresh()
    for rows in chunks:
        in_play.reserve(len(rows), LENGTH)
        in_play.places(torch.tensor(rows, dtype=torch.long))
    other.load(torch.tensor([5, 2]))  # over something loaded before
    other.load(in_play.taken().clone())
    for one in (in_play, other):
        one.reserve(len(more), LENGTH)
    rows = torch.tensor(more, dtype=torch.long)
    assert torch.equal(in_play.places(rows), other.places(rows))


def test_buffers_stay_where_they_are_while_there_is_room() -> None:
    in_play, moves = fresh(), 0
    for step in range(200):
        moves += in_play.reserve(10, LENGTH)
        in_play.places(torch.arange(10) + step % 5)
    assert moves <= 2
    assert in_play.capacity >= LEAST
    before = in_play.rows.data_ptr()
    in_play.clear()
    assert not in_play.reserve(10, LENGTH)
    assert in_play.rows.data_ptr() == before
    assert not len(in_play.taken())


def test_room_is_that_of_the_rows_met_and_not_of_the_table() -> None:
    in_play = fresh()
    for step in range(50):
        in_play.reserve(10, 100_000)
        in_play.places(torch.arange(10) + 1000 * (step % 7))
    assert in_play.capacity < 1000


def test_in_a_step_that_is_not_valid_no_row_gets_a_place() -> None:
    in_play = fresh()
    for rows, valid in (([4, 4], False), ([3, 9], True), ([9, 7, 2], False), ([2], True)):
        in_play.reserve(len(rows), LENGTH)
        in_play.places(torch.tensor(rows), torch.tensor(valid))
    assert in_play.taken().tolist() == [3, 9, 2]


# Moments


def shapes(**sizes: int) -> dict[str, torch.Size]:
    return {name: torch.Size((rows, 2)) for name, rows in sizes.items()}


def test_parts_lie_side_by_side_and_keep_what_they_hold() -> None:
    moments, like = AdamMoments(), torch.zeros(0, dtype=torch.float64)
    moments.lay(shapes(a=1, b=2), like)
    moments.of("a")[0].fill_(1)
    moments.of("b")[1].fill_(2)
    assert moments.together(["a", "b"])[0].tolist() == [1, 1, 0, 0, 0, 0]
    moments.lay(shapes(b=3), like)
    assert moments.together(["a", "b"])[1].tolist() == [0, 0, 2, 2, 2, 2, 0, 0]
    moments.lay(shapes(c=1, a=1), like)
    assert moments.together(["c", "a", "b"])[0].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert moments.names() == ["a", "b", "c"]


def test_they_move_only_when_order_or_shapes_ask_for_it() -> None:
    moments, like = AdamMoments(), torch.zeros(0)
    moments.lay(shapes(a=1, b=2, c=1), like)
    for same in (shapes(a=1, b=2, c=1), shapes(b=2, c=1), shapes(b=2)):
        moments.lay(same, like)
    assert moments.moves == 1
    moments.lay(shapes(b=4), like)
    moments.lay(shapes(a=1, b=4, c=1), like)  # what grew stayed in its place
    assert moments.moves == 2
    before = moments.together(["a"])[0].data_ptr()
    moments.clear()
    assert moments.together(["a"])[0].data_ptr() == before
