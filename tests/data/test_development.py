"""The development split: two disjoint fifths of the training half, and the test half never opened."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from prol.data.base import ArraySplit, Dataset, Loaded
from prol.data.split import development


class Forbidden:
    """A test half that must not be opened."""

    @property
    def labels(self) -> NDArray[np.int64]:
        raise AssertionError("the test labels were read")

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:  # noqa: ARG002
        raise AssertionError("test images were read")


def numbered(labels: NDArray[np.int64]) -> Dataset:
    """Training images whose first pixel is their number."""
    images = np.zeros((len(labels), 1, 1, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    names = tuple(str(i) for i in range(labels.max() + 1))
    return Dataset("numbered", names, ArraySplit(images, labels), Forbidden())


def drawn(dataset: Dataset) -> tuple[list[int], list[int]]:
    """Numbers of the images in both halves."""
    train, test = (half.load(np.arange(len(half.labels))).images for half in (dataset.train, dataset.test))
    return [int(image[0, 0, 0]) for image in train], [int(image[0, 0, 0]) for image in test]


@given(st.lists(st.integers(2, 40), min_size=1, max_size=5))
def test_halves_are_disjoint_fifths_of_every_class(sizes: list[int]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    carved = development(numbered(labels))
    learnt, asked = drawn(carved)
    assert not set(learnt) & set(asked)
    assert carved.train.labels.tolist() == labels[learnt].tolist()
    assert carved.test.labels.tolist() == labels[asked].tolist()
    for label, size in enumerate(sizes):
        assert (labels[learnt] == label).sum() == (labels[asked] == label).sum() == max(1, size // 5)


def test_split_is_the_same_every_time_and_says_what_it_is() -> None:
    labels = np.arange(60) % 3
    one, other = development(numbered(labels)), development(numbered(labels))
    assert drawn(one) == drawn(other)
    assert "12 training images to learn and 12 others to test" in one.notes[-1]


def test_images_are_drawn_not_taken_from_the_front() -> None:
    learnt, _ = drawn(development(numbered(np.zeros(100, np.int64))))
    assert max(learnt) > 50


def test_class_of_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match="class 1 has one training image"):
        development(numbered(np.array([0, 0, 1])))
