"""A balanced memory has as many of each class as there is room for."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from prol.methods.replay.sample_memory import SampleMemory, greedy_balance


def kept(rows: list[int], capacity: int, chunk: int, seed: int = 0) -> SampleMemory:
    memory, random = SampleMemory(capacity, 1, torch.device("cpu"), greedy_balance), torch.Generator().manual_seed(seed)
    for start in range(0, len(rows), chunk):
        memory.commit(memory.plan(rows[start : start + chunk], random))
    return memory


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 7))
def test_a_class_has_less_than_the_largest_only_where_it_had_no_more(rows: list[int], room: int, chunk: int) -> None:
    places = kept(rows, room, chunk).places
    assert places.filled == min(len(rows), room)
    assert places.met == len(rows)
    counts = torch.bincount(places.rows[: places.filled], minlength=7)
    for row in set(rows):
        assert min(rows.count(row), int(counts.max()) - 1) <= counts[row] <= rows.count(row)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 9))
def test_the_size_of_chunks_does_not_matter(rows: list[int], chunk: int) -> None:
    whole, parts = kept(rows, 6, len(rows)), kept(rows, 6, chunk)
    assert torch.equal(whole.places.rows, parts.places.rows)


def test_which_of_the_largest_class_goes_is_drawn() -> None:
    gone = {int((kept([0] * 8 + [1], 8, 9, seed).places.rows == 1).nonzero()) for seed in range(60)}
    assert gone == set(range(8))


def test_what_a_later_sample_of_the_chunk_displaces_is_not_written() -> None:
    memory, random = SampleMemory(2, 1, torch.device("cpu"), greedy_balance), torch.Generator().manual_seed(1)
    insertion = memory.plan([0, 0, 1, 2, 2], random)
    images = torch.arange(1, 6, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 3, 1, 1)
    memory.write(insertion.slots, torch.tensor([0, 0, 1, 2, 2]), images, {}, torch.tensor(True))
    memory.commit(insertion)
    row_of_image = {1: 0, 2: 0, 3: 1, 4: 2, 5: 2}
    assert [row_of_image[int(image[0])] for image in memory.images[:2]] == memory.places.rows.tolist()
    assert memory.rows[:2].tolist() == memory.places.rows.tolist()
