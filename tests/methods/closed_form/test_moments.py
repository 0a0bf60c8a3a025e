"""Accumulated moments against those of all features at once."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from largest import Largest, homes
from prol.methods.closed_form.moments import BLOCK, COMPARED, Moments, Totals, TwinMoments
from prol.state import State

FEATURES = torch.randn(23, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ROWS = torch.tensor([0, 1, 2, 0, 0, 3, 1, 2, 0, 1, 2, 2, 0, 3, 1, 0, 0, 2, 1, 3, 0, 1, 2])


def make(twin: bool = False, width: int = 6, dtype: torch.dtype = torch.float64) -> TwinMoments:
    state = State()
    moments = TwinMoments(state, width, dtype, twin)
    state.add_classes(4)
    return moments


def alone(width: int, classes: int, dtype: torch.dtype = torch.float64, height: int = BLOCK) -> Moments:
    state = State()
    moments = Moments(state, width, dtype, height)
    state.add_classes(classes)
    return moments


def close(one: Totals, other: Totals, tolerance: float = 1e-12) -> None:
    for mine, others in ((one.gram, other.gram), (one.sums, other.sums), (one.counts, other.counts)):
        torch.testing.assert_close(mine, others, rtol=0, atol=tolerance)


def test_totals_are_products_and_sums() -> None:
    found = Totals.of(FEATURES, ROWS, 5)
    torch.testing.assert_close(found.gram, FEATURES.T @ FEATURES)
    torch.testing.assert_close(found.sums[2], FEATURES[ROWS == 2].sum(0))
    assert found.counts.tolist() == [8, 6, 6, 3, 0]
    assert not found.sums[4].any()


def test_a_chunk_of_any_length_is_taken_in_without_comparing_each_sample_with_all_others() -> None:
    random = torch.Generator().manual_seed(2)
    features = torch.randn(3 * COMPARED + 7, 6, generator=random, dtype=torch.float64)
    rows, moments = torch.randint(4, (len(features),), generator=random), make()
    with Largest(homes([features, *moments.fit.tensors().values()])) as largest:
        moments.add(features, rows)
    assert 0 < largest.numbers <= COMPARED**2
    close(moments.fit.totals(), Totals.of(features, rows, 4), tolerance=1e-9)


@given(cuts=st.sets(st.integers(1, 22), max_size=9), order=st.permutations(range(23)), twin=st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_neither_chunks_nor_their_order_matter(cuts: set[int], order: list[int], twin: bool) -> None:
    moments = make(twin)
    for start, end in pairwise([0, *sorted(cuts), 23]):
        chunk = order[start:end]
        moments.add(FEATURES[chunk], ROWS[chunk])
    fit = moments.fit.totals()
    close(fit if moments.held is None else fit + moments.held.totals(), Totals.of(FEATURES, ROWS, 4))
    assert moments.counts().tolist() == [8, 6, 6, 3]


@pytest.mark.parametrize("size", [1, 3, 10, 23])
def test_every_fifth_sample_is_held_out_whatever_the_chunk_size(size: int) -> None:
    moments = make(twin=True)
    for start in range(0, 23, size):
        moments.add(FEATURES[start : start + size], ROWS[start : start + size])
    held = torch.arange(23) % 5 == 4
    assert moments.held is not None
    close(moments.held.totals(), Totals.of(FEATURES[held], ROWS[held], 4))
    close(moments.fit.totals(), Totals.of(FEATURES[~held], ROWS[~held], 4))


def test_wide_features_are_stored_as_blocks_up_to_the_diagonal() -> None:
    width = 2 * BLOCK + 7
    moments = alone(width, 2)
    features = torch.randn(3, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moments.add(features, torch.tensor([1, 0, 1]))
    close(moments.totals(), Totals.of(features, torch.tensor([1, 0, 1]), 2), tolerance=1e-11)
    assert [tuple(block.shape) for block in moments.blocks] == [(BLOCK, BLOCK), (BLOCK, 2 * BLOCK), (7, width)]


@given(width=st.integers(1, 6), height=st.integers(1, 9))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_block_rows_of_any_height_hold_the_same_in_half_the_room_and_half_a_block_row(width: int, height: int) -> None:
    moments = alone(width, 4, height=height)
    moments.add(FEATURES[:, :width], ROWS)
    close(moments.totals(), Totals.of(FEATURES[:, :width], ROWS, 4))
    assert all(len(block) == min(height, width) for block in moments.blocks[:-1])
    assert sum(block.numel() for block in moments.blocks) <= width * (width + min(height, width)) / 2


def test_a_step_makes_nothing_as_large_as_the_gram() -> None:
    moments = make(width=200)
    where = homes(moments.fit.tensors().values())
    with Largest(where) as largest:
        moments.add(torch.ones(3, 200, dtype=torch.float64), ROWS[:3])
    assert 0 < largest.numbers <= 3 * 200
    assert homes(moments.fit.tensors().values()) == where


@given(
    width=st.integers(1, 6),
    height=st.integers(1, 9),
    counts=st.tuples(st.integers(0, 23), st.integers(0, 23)),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_shift_is_as_if_it_had_been_added_to_each_sample_seen(
    width: int, height: int, counts: tuple[int, int], seed: int
) -> None:
    """Also of none, of five classes the last of which is empty; what comes later is not shifted."""
    first, then = sorted(counts)
    x, moments = FEATURES[:, :width].clone(), alone(width, 5, height=height)
    steps = 3 * torch.randn(2, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moments.add(x[:first], ROWS[:first])
    moments.shift(steps[0])
    x[:first] += steps[0]
    close(moments.totals(), Totals.of(x[:first], ROWS[:first], 5), tolerance=1e-9)
    moments.add(x[first:then], ROWS[first:then])
    moments.shift(steps[1])
    x[:then] += steps[1]
    moments.add(x[then:], ROWS[then:])
    close(moments.totals(), Totals.of(x, ROWS, 5), tolerance=1e-9)
    assert not moments.totals().sums[4].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_shift_is_made_in_place_at_the_precision_of_the_store(dtype: torch.dtype) -> None:
    """Stored numbers are far more than what is made for a shift of either precision."""
    width, random = 200, torch.Generator().manual_seed(2)
    x, step = (torch.randn(size, width, generator=random, dtype=torch.float64) for size in (23, 1))
    moments = alone(width, 5, dtype, height=32)
    moments.add(x, ROWS)
    where = homes(moments.tensors().values())
    with Largest(where) as largest:
        moments.shift(step[0])
    assert 0 < largest.numbers <= 2 * width
    assert homes(moments.tensors().values()) == where
    assert {block.dtype for block in moments.blocks} == {moments.sums.rows.dtype} == {dtype}
    assert moments.counts.rows.dtype == torch.float64
    close(moments.totals(), Totals.of(x + step, ROWS, 5), tolerance=1e-4 if dtype == torch.float32 else 1e-11)


def test_classes_may_come_at_any_time() -> None:
    state = State()
    moments = TwinMoments(state, 6, torch.float64, twin=True)
    state.add_classes(1)
    moments.add(FEATURES[:1], ROWS[:1])
    state.add_classes(3)
    moments.add(FEATURES[1:], ROWS[1:])
    assert moments.held is not None
    close(moments.fit.totals() + moments.held.totals(), Totals.of(FEATURES, ROWS, 4))


def test_cleared_moments_know_the_classes_but_no_sample() -> None:
    moments = make(twin=True)
    moments.add(FEATURES, ROWS)
    moments.clear()
    assert moments.counts().tolist() == [0, 0, 0, 0]
    assert moments.seen == 0
    assert not moments.fit.totals().gram.any()


def test_clearing_forgets_what_is_not_finite_too() -> None:
    moments = make().fit
    moments.add(FEATURES[:3] / torch.tensor([0.0, 1.0, 1.0]).double().unsqueeze(1), ROWS[:3])
    assert not moments.totals().gram.isfinite().all()
    moments.clear()
    close(moments.totals(), Totals.of(FEATURES[:0], ROWS[:0], 4))


def test_an_ended_separation_leaves_one_part_that_has_everything() -> None:
    state = State()
    moments = TwinMoments(state, 6, torch.float64, twin=True)
    state.add_classes(4)
    moments.add(FEATURES, ROWS)
    assert {name.split("/")[0] for name in state.saved_tensors()} == {"fit", "held"}
    moments.merge()
    assert {name.split("/")[0] for name in state.saved_tensors()} == {"fit"}
    moments.add(FEATURES, ROWS)
    close(moments.fit.totals(), Totals.of(FEATURES.repeat(2, 1), ROWS.repeat(2), 4))


def test_float32_halves_the_bytes_and_is_solved_in_float64() -> None:
    single, double = make(dtype=torch.float32), make()
    for moments in (single, double):
        moments.add(FEATURES, ROWS)
    assert single.fit.blocks[0].element_size() == 4
    assert single.fit.totals().gram.dtype == torch.float64
    close(single.fit.totals(), double.fit.totals(), tolerance=1e-5)
