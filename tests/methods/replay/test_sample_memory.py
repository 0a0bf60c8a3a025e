"""The bounded memory of samples: who is stored with which probability, where, and what a bad step leaves."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.replay.sample_memory import EMPTY, SampleMemory, combine_samples, greedy_balance, remove_samples
from prol.state import State

VALID, INVALID = torch.tensor(True), torch.tensor(False)


def made(capacity: int, size: int = 1) -> SampleMemory:
    return SampleMemory(State(), capacity, size)


def numbered(first: int, count: int, size: int = 1) -> Tensor:
    """Images whose every byte is their number."""
    return torch.arange(first, first + count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, size, size)


def insert(memory: SampleMemory, rows: list[int], random: torch.Generator, first: int = 0) -> None:
    """As a valid step does it; the payload, if there is one, is the number too."""
    insertion = memory.plan(rows, random)
    numbers = torch.arange(first, first + len(rows))
    payload = {name: numbers.to(stored.dtype) for name, stored in memory.payload.items()}
    memory.write(insertion.slots, torch.tensor(rows), numbered(first, len(rows)), payload, VALID)
    memory.commit(insertion)


def stored_numbers(memory: SampleMemory) -> list[int]:
    return memory.images[: len(memory), 0, 0, 0].tolist()


def filled_with(rows: list[int], capacity: int, seed: int = 0) -> SampleMemory:
    memory = made(capacity)
    memory.add_payload("number", torch.int64)
    insert(memory, rows, torch.Generator().manual_seed(seed))
    return memory


def test_the_first_samples_fill_the_slots_in_their_order() -> None:
    memory = filled_with([3, 1, 2], 5)
    assert stored_numbers(memory) == [0, 1, 2]
    assert memory.places.rows.tolist() == [3, 1, 2, EMPTY, EMPTY]
    assert (len(memory), memory.places.filled, memory.places.seen) == (3, 3, 3)


def test_sample_number_i_goes_to_a_slot_drawn_among_i_plus_1() -> None:
    """By the rule as it is written down: floor(u * (i + 1)), stored if that is below the capacity."""
    memory, random, twin = made(3), torch.Generator().manual_seed(8), torch.Generator().manual_seed(8)
    slots = memory.plan([0] * 12, random).named.tolist()
    expected = [0, 1, 2]
    for i in range(3, 12):
        slot = math.floor(float(torch.rand((), generator=twin, dtype=torch.float64)) * (i + 1))
        expected.append(slot if slot < 3 else 3)
    assert slots == expected


def test_every_sample_is_stored_with_the_same_chance() -> None:
    """Chi-square over 1,500 seeded memories of 4 out of 20: each sample should be there in 300 of them."""
    runs, capacity, stream = 1_500, 4, 20
    counts = [0] * stream
    for seed in range(runs):
        memory, random = made(capacity), torch.Generator().manual_seed(seed)
        for first in range(0, stream, 5):
            insert(memory, [0] * 5, random, first)
        for number in stored_numbers(memory):
            counts[number] += 1
    assert sum(counts) == runs * capacity
    expected, chance = runs * capacity / stream, capacity / stream
    # Counts of samples of one memory hang together: with this variance the sum has stream - 1 degrees of freedom.
    variance = runs * chance * (1 - chance) * stream / (stream - 1)
    chi_square = sum((count - expected) ** 2 for count in counts) / variance
    assert 4 < chi_square < 44  # beyond 44 one in a thousand, below 4 likewise
    assert max(abs(count - expected) for count in counts) < 4.5 * variance**0.5


@given(
    rows=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    capacity=st.integers(1, 8),
    cuts=st.sets(st.integers(1, 39)),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_what_is_stored_does_not_depend_on_the_size_of_chunks(
    rows: list[int], capacity: int, cuts: set[int], seed: int
) -> None:
    whole = filled_with(rows, capacity, seed)
    parts, random = made(capacity), torch.Generator().manual_seed(seed)
    parts.add_payload("number", torch.int64)
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for first, last in itertools.pairwise(edges):
        insert(parts, rows[first:last], random, first)
    assert stored_numbers(whole) == stored_numbers(parts)
    assert torch.equal(whole.places.rows, parts.places.rows)
    assert whole.places.seen == parts.places.seen == len(rows)
    for memory in (whole, parts):
        numbers = stored_numbers(memory)
        assert len(memory) == len(set(numbers)) == min(capacity, len(rows))
        # Image, class, payload and the device's own table belong together.
        assert memory.places.rows[: len(memory)].tolist() == [rows[number] for number in numbers]
        assert memory.payload["number"][: len(memory)].tolist() == numbers
        assert memory.rows.tolist() == [*memory.places.rows.tolist(), EMPTY]
        assert int(memory.seen) == len(rows)
        assert not memory.images[-1].any()


def test_of_two_samples_in_one_slot_the_later_one_stays() -> None:
    memory, seed = made(1), 0
    while memory.plan([0] * 4, torch.Generator().manual_seed(seed)).named.tolist() != [0, 0, 1, 0]:
        seed += 1
    insertion = memory.plan([5, 6, 7, 8], torch.Generator().manual_seed(seed))
    assert insertion.slots.tolist() == [1, 1, 1, 0]
    memory.write(insertion.slots, torch.tensor([5, 6, 7, 8]), numbered(10, 4), {}, VALID)
    assert memory.places.rows.tolist() == [EMPTY]  # the host is told by `commit`
    memory.commit(insertion)
    assert (stored_numbers(memory), memory.places.rows.tolist()) == ([13], [8])


def test_a_step_that_is_not_valid_writes_nothing() -> None:
    memory, random = filled_with([0, 1, 2], 4), torch.Generator().manual_seed(1)
    images, rows, numbers = memory.images.clone(), memory.rows.clone(), memory.payload["number"][:-1].clone()
    insertion = memory.plan([3, 3, 3], random)
    memory.write(insertion.slots, torch.tensor([3, 3, 3]), numbered(50, 3), {"number": torch.arange(3)}, INVALID)
    assert torch.equal(memory.images, images)
    assert torch.equal(memory.rows, rows)
    assert torch.equal(memory.payload["number"][:-1], numbers)
    assert (int(memory.seen), memory.places.seen) == (3, 3)


def test_draws_are_of_different_samples_and_no_more_than_there_are() -> None:
    memory, random = filled_with([0, 1, 0, 2, 1, 0], 9), torch.Generator().manual_seed(0)
    for count, got in ((4, 4), (6, 6), (64, 6), (0, 0)):
        slots = memory.draw(count, random).tolist()
        assert len(slots) == len(set(slots)) == got
        assert set(slots) <= set(range(6))
    assert made(3).draw(2, random).shape == (0,)
    among = torch.tensor([0, 2, 5])
    assert sorted(memory.draw(5, random, among).tolist()) == [0, 2, 5]
    assert set(memory.draw(2, random, among).tolist()) < {0, 2, 5}
    assert memory.draw(2, random, among[:0]).shape == (0,)
    assert memory.rows_in(torch.tensor([3, 0])).tolist() == [2, 0]


def test_draws_are_uniform() -> None:
    memory, random = filled_with([0] * 8, 8), torch.Generator().manual_seed(0)
    counts = torch.stack([memory.draw(3, random) for _ in range(2_000)]).flatten().bincount(minlength=8)
    deviation = (2_000 * 3 / 8 * 5 / 8) ** 0.5
    assert float((counts - 750).abs().max()) < 4.5 * deviation


def saved(memory: SampleMemory) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = {name: tensor.clone() for name, tensor in memory._state.saved_tensors().items()}
    return tensors, memory._state.saved_values()


def test_a_state_is_loaded_in_place() -> None:
    memory, twin = filled_with([0, 1, 2, 0, 1, 2, 2], 4), made(4)
    twin.add_payload("number", torch.int64)
    buffers = [twin.images.data_ptr(), twin.rows.data_ptr(), twin.payload["number"].data_ptr()]
    tensors, values = saved(memory)
    twin._state.load(tensors, values, 3)
    assert buffers == [twin.images.data_ptr(), twin.rows.data_ptr(), twin.payload["number"].data_ptr()]
    one, other = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    for first in (20, 26):
        insert(memory, [3] * 6, one, first)
        insert(twin, [3] * 6, other, first)
    for name, tensor in saved(memory)[0].items():
        assert torch.equal(tensor, saved(twin)[0][name])
    assert saved(memory)[1] == saved(twin)[1] == {"memory": {"filled": 4, "met": 19}}
    assert torch.equal(memory.rows, twin.rows)
    with pytest.raises(ValueError, match="a memory of 4 samples was saved, this one has 5"):
        made(5)._state.load(tensors, values, 3)


def test_without_a_class_the_others_move_up() -> None:
    tensors, values = saved(filled_with([2, 0, 1, 2, 1], 7))
    assert remove_samples(tensors, values, 1) == "the 2 images stored of it"
    assert tensors["memory/rows"].tolist() == [1, 0, 1, *[EMPTY] * 4]
    assert tensors["memory/images"][:, 0, 0, 0].tolist() == [0, 1, 3, 0, 0, 0, 0]
    assert tensors["memory/number"].tolist() == [0, 1, 3, 0, 0, 0, 0]
    assert values["memory"] == {"filled": 3, "met": 5}
    assert remove_samples(tensors, values, 5) == "the 0 images stored of it"
    assert tensors["memory/rows"].tolist() == [1, 0, 1, *[EMPTY] * 4]


def test_images_of_merged_classes_stay() -> None:
    for source, into, rows in ((0, 2, [1, 1, 0, 1, 0]), (2, 0, [0, 0, 1, 0, 1]), (1, 2, [1, 0, 1, 1, 1])):
        tensors, values = saved(filled_with([2, 0, 1, 2, 1], 6))
        images = tensors["memory/images"].clone()
        combine_samples(tensors, values, source, into)
        assert tensors["memory/rows"].tolist() == [*rows, EMPTY]
        assert torch.equal(tensors["memory/images"], images)


def test_bytes_are_those_of_images_and_payload() -> None:
    memory = made(5_000, 32)
    assert (memory.amount().count, memory.amount().bytes) == (0, 0)
    insertion = memory.plan([0] * 5_000, torch.Generator())
    memory.commit(insertion)
    assert (memory.amount().count, memory.amount().bytes) == (5_000, 15_360_000)
    memory.payload["logits"] = torch.zeros(5_001, 100)
    assert memory.amount().bytes == 15_360_000 + 5_000 * 400  # the 2 MB of DER++


@given(
    good=st.lists(st.booleans(), min_size=1, max_size=8),
    capacity=st.integers(1, 9),
    chunk=st.integers(1, 4),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_what_is_read_again_is_what_the_valid_steps_wrote(
    good: list[bool], capacity: int, chunk: int, seed: int
) -> None:
    """The host counts on every step; some wrote nothing. Afterwards its table is the device's, without holes."""
    memory, random = made(capacity), torch.Generator().manual_seed(seed)
    memory.add_payload("number", torch.int64)
    slots: dict[int, int] = {}
    for step, valid in enumerate(good):
        rows = [(step + i) % 3 for i in range(chunk)]
        insertion = memory.plan(rows, random)
        numbers = torch.arange(step * chunk, step * chunk + chunk)
        memory.write(
            insertion.slots, torch.tensor(rows), numbered(step * chunk, chunk), {"number": numbers}, torch.tensor(valid)
        )
        memory.commit(insertion)
        if valid:
            slots |= dict(zip(insertion.named.tolist(), numbers.tolist(), strict=True))
    slots.pop(capacity, None)
    memory.reread()
    expected = [slots[slot] for slot in sorted(slots)]
    assert stored_numbers(memory) == expected
    assert memory.payload["number"][: len(memory)].tolist() == expected
    assert memory.places.rows[: len(memory)].tolist() == [(n // chunk + n % chunk) % 3 for n in expected]
    assert memory.places.rows[len(memory) :].tolist() == [EMPTY] * (capacity - len(expected))
    assert memory.rows.tolist() == [*memory.places.rows.tolist(), EMPTY]
    assert not memory.images[len(memory) :].any()
    assert memory.places.seen == chunk * sum(good)


def balanced(rows: list[int], capacity: int, chunk: int, seed: int = 0) -> SampleMemory:
    memory, random = SampleMemory(State(), capacity, 1, greedy_balance), torch.Generator().manual_seed(seed)
    for start in range(0, len(rows), chunk):
        memory.commit(memory.plan(rows[start : start + chunk], random))
    return memory


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 7))
def test_a_class_has_less_than_the_largest_only_where_it_had_no_more(rows: list[int], room: int, chunk: int) -> None:
    places = balanced(rows, room, chunk).places
    assert places.filled == min(len(rows), room)
    assert places.seen == len(rows)
    counts = torch.bincount(places.rows[: places.filled], minlength=7)
    for row in set(rows):
        assert min(rows.count(row), int(counts.max()) - 1) <= counts[row] <= rows.count(row)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 9))
def test_the_size_of_chunks_does_not_matter(rows: list[int], chunk: int) -> None:
    whole, parts = balanced(rows, 6, len(rows)), balanced(rows, 6, chunk)
    assert torch.equal(whole.places.rows, parts.places.rows)


def test_which_of_the_largest_class_goes_is_drawn() -> None:
    gone = {int((balanced([0] * 8 + [1], 8, 9, seed).places.rows == 1).nonzero()) for seed in range(60)}
    assert gone == set(range(8))


def test_what_a_later_sample_of_the_chunk_displaces_is_not_written() -> None:
    memory, random = SampleMemory(State(), 2, 1, greedy_balance), torch.Generator().manual_seed(1)
    insertion = memory.plan([0, 0, 1, 2, 2], random)
    images = torch.arange(1, 6, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 3, 1, 1)
    memory.write(insertion.slots, torch.tensor([0, 0, 1, 2, 2]), images, {}, torch.tensor(True))
    memory.commit(insertion)
    row_of_image = {1: 0, 2: 0, 3: 1, 4: 2, 5: 2}
    assert [row_of_image[int(image[0])] for image in memory.images[:2]] == memory.places.rows.tolist()
    assert memory.rows[:2].tolist() == memory.places.rows.tolist()
