from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from prol.data import ArraySplit, Dataset, Loaded, Subset, Unreadable


def numbered(labels: list[int]) -> ArraySplit:
    """Image i is filled with the number i."""
    images = (
        np.zeros((len(labels), 2, 2, 3), dtype=np.uint8) + np.arange(len(labels), dtype=np.uint8)[:, None, None, None]
    )
    return ArraySplit(images, np.array(labels, dtype=np.int64))


@dataclass(frozen=True)
class OddOnesBroken:
    labels: NDArray[np.int64]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        good = wanted[wanted % 2 == 0]
        bad = [Unreadable(int(i), f"{i}.png", "odd") for i in wanted if i % 2]
        return Loaded([np.full((1, 1, 3), i, dtype=np.uint8) for i in good], good, bad)


def test_images_in_memory_come_in_the_order_requested() -> None:
    loaded = numbered([0, 0, 1, 1]).load([3, 0, 2])
    assert [int(image[0, 0, 0]) for image in loaded.images] == [3, 0, 2]
    assert loaded.indices.tolist() == [3, 0, 2]
    assert loaded.unreadable == []


def test_changing_a_loaded_image_leaves_the_data_set_alone() -> None:
    split = numbered([0, 1])
    split.load([1]).images[0][:] = 99
    assert int(split.load([1]).images[0][0, 0, 0]) == 1


def test_asking_for_nothing_gives_nothing() -> None:
    loaded = numbered([0, 1]).load([])
    assert loaded.images == []
    assert loaded.indices.tolist() == []


def test_a_limited_data_set_keeps_the_first_images_of_each_class_under_new_numbers() -> None:
    data = Dataset("three", ("a", "b", "c"), numbered([2, 0, 0, 2, 0, 1, 2]), numbered([0, 0, 1, 2]))
    small = data.limited(2)
    assert small.train.labels.tolist() == [2, 0, 0, 2, 1]
    assert small.test.labels.tolist() == [0, 0, 1, 2]
    loaded = small.train.load([4, 0])
    assert [int(image[0, 0, 0]) for image in loaded.images] == [5, 0]
    assert loaded.indices.tolist() == [4, 0]
    assert small.class_names == data.class_names


def test_a_limit_below_one_is_refused() -> None:
    data = Dataset("one", ("a",), numbered([0]), numbered([0]))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        data.limited(0)


def test_limiting_an_empty_split_leaves_it_empty() -> None:
    data = Dataset("one", ("a",), numbered([0]), numbered([]))
    assert data.limited(3).test.labels.tolist() == []


def test_a_subset_names_unreadable_images_by_its_own_numbers() -> None:
    whole = OddOnesBroken(np.array([0, 0, 1, 1, 2, 2], dtype=np.int64))
    loaded = Subset(whole, np.array([5, 4, 1], dtype=np.int64)).load([2, 1, 0])
    assert loaded.indices.tolist() == [1]
    assert [(bad.index, bad.path) for bad in loaded.unreadable] == [(2, "1.png"), (0, "5.png")]


def test_two_classes_of_one_name_are_refused() -> None:
    images = ArraySplit(np.zeros((3, 2, 2, 3), dtype=np.uint8), np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="several classes of one name: cat"):
        Dataset("pets", ("cat", "dog", "cat"), images, images)
