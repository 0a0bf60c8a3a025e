"""Loading ahead: the order, how far ahead, errors, and no thread left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from prol.data import Loaded, Unreadable
from prol.data.prefetch import prefetched

SIDE = 10
IMAGE_BYTES = SIDE * SIDE * 3


@dataclass
class Numbered:
    """Image i is filled with i; of a `broken` one the odd images cannot be read. Asking for 199 is an error."""

    labels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(200, np.int64))
    broken: bool = False
    loads: list[list[int]] = field(default_factory=list)

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        self.loads.append(wanted.tolist())
        if 199 in wanted:
            raise ValueError("the spool is damaged")
        good = wanted[wanted % 2 == 0] if self.broken else wanted
        bad = [Unreadable(int(i), f"{i}.png", "odd") for i in wanted if i not in good]
        return Loaded([np.full((SIDE, SIDE, 3), i, np.uint8) for i in good], good, bad)


def batches(numbers: list[list[int]]) -> list[NDArray[np.int64]]:
    return [np.array(batch, dtype=np.int64) for batch in numbers]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prol-prefetch")]


many_batches = st.lists(st.lists(st.integers(0, 198), max_size=5), max_size=20)


@settings(deadline=None)
@given(numbers=many_batches, workers=st.integers(0, 5), most_bytes=st.sampled_from([0, 1000, 1 << 29]))
def test_batches_come_in_their_order_whatever_the_number_of_workers(
    numbers: list[list[int]], workers: int, most_bytes: int
) -> None:
    split = Numbered(broken=True)
    for wanted, loaded in zip(numbers, prefetched(split, batches(numbers), workers, most_bytes), strict=True):
        good = [i for i in wanted if i % 2 == 0]
        assert loaded.indices.tolist() == good
        assert [int(image[0, 0, 0]) for image in loaded.images] == good
        assert [bad.index for bad in loaded.unreadable] == [i for i in wanted if i % 2]
    assert sorted(split.loads) == sorted(numbers)


def taken_after(count: int, workers: int, most_bytes: int) -> int:
    """How many batches of ten images have been taken when the consumer has `count` of them."""
    taken = 0

    def source() -> Iterator[NDArray[np.int64]]:
        nonlocal taken
        for start in range(0, 100, 10):
            taken += 1
            yield np.arange(start, start + 10)

    reading = prefetched(Numbered(), source(), workers, most_bytes)
    for _ in range(count):
        next(reading)
    reading.close()
    return taken


def test_nothing_is_taken_before_it_is_requested() -> None:
    assert taken_after(0, workers=3, most_bytes=1 << 29) == 0
    assert taken_after(1, workers=0, most_bytes=1 << 29) == 1
    assert taken_after(4, workers=0, most_bytes=1 << 29) == 4


@pytest.mark.parametrize(
    ("workers", "most_bytes", "ahead"),
    [
        (1, 1 << 29, 2),
        (3, 1 << 29, 6),
        (3, 35 * IMAGE_BYTES, 3),
        (3, 10 * IMAGE_BYTES, 1),
        (3, 0, 1),
    ],
)
def test_no_more_is_loaded_ahead_than_there_is_use_and_memory_for(workers: int, most_bytes: int, ahead: int) -> None:
    # The size of a batch is known when the first has come, so that only one more is taken until then.
    assert taken_after(1, workers, most_bytes) == 2
    assert taken_after(3, workers, most_bytes) == 3 + ahead


def test_one_batch_is_loaded_while_the_consumer_has_another() -> None:
    second = threading.Event()

    class Telling(Numbered):
        def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
            if indices[0] == 1:
                second.set()
            return super().load(indices)

    reading = prefetched(Telling(), batches([[0], [1], [2]]), workers=1, most_bytes=0)
    next(reading)
    assert second.wait(20)
    reading.close()


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_an_error_of_loading_comes_in_its_turn_and_ends_the_threads(workers: int) -> None:
    reading = prefetched(Numbered(), batches([[1], [2], [3], [199], [4], [5]]), workers)
    assert [next(reading).indices.tolist() for _ in range(3)] == [[1], [2], [3]]
    with pytest.raises(ValueError, match="the spool is damaged"):
        next(reading)
    assert threads() == []


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_an_error_of_the_batches_comes_in_its_turn_too(workers: int) -> None:
    def source() -> Iterator[NDArray[np.int64]]:
        yield from batches([[1], [2], [3]])
        raise KeyError("no more")

    reading = prefetched(Numbered(), source(), workers)
    assert [next(reading).indices.tolist() for _ in range(3)] == [[1], [2], [3]]
    with pytest.raises(KeyError, match="no more"):
        next(reading)
    assert threads() == []


def test_closing_early_leaves_no_thread_and_loads_nothing_more() -> None:
    split = Numbered()
    reading = prefetched(split, batches([[i] for i in range(50)]), workers=4)
    next(reading)
    next(reading)
    assert threads()
    reading.close()
    assert threads() == []
    loads = len(split.loads)
    assert loads <= 2 + 8
    assert list(reading) == []
    assert len(split.loads) == loads


def test_a_finished_or_forgotten_stream_leaves_no_thread() -> None:
    assert len(list(prefetched(Numbered(), batches([[0], [1]]), workers=3))) == 2
    assert threads() == []
    reading = prefetched(Numbered(), batches([[0], [1]]), workers=3)
    next(reading)
    del reading
    assert threads() == []


def test_loads_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3)

    class Meeting(Numbered):
        def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
            if int(indices[0]) > 1:  # by then the size of a batch is known
                meeting.wait(20)
            return super().load(indices)

    numbers = [[i] for i in range(2 + 3)]
    assert len(list(prefetched(Meeting(), batches(numbers), workers=3))) == 5


def test_numbers_below_zero_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="workers must be 0 or more, got -1"):
        prefetched(Numbered(), [], workers=-1)
    with pytest.raises(ValueError, match="most_bytes must be 0 or more, got -5"):
        prefetched(Numbered(), [], workers=1, most_bytes=-5)
