"""A data set of a few coloured images, some of which may be unreadable, and a stream over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prol.data import ArraySplit, Dataset, Loaded, Unreadable
from prol.data.streams import Stream, disjoint

CLASSES = ("red", "green", "blue", "grey", "white")
_COLOURS = np.array([(200, 30, 30), (30, 200, 30), (30, 30, 200), (110, 110, 110), (240, 240, 240)])


@dataclass(frozen=True)
class Flawed:
    """A split in which some images cannot be read."""

    whole: ArraySplit
    bad: frozenset[int]

    @property
    def labels(self) -> Any:
        return self.whole.labels

    def load(self, indices: Sequence[int] | Any) -> Loaded:
        good = [int(i) for i in indices if int(i) not in self.bad]
        unreadable = [Unreadable(int(i), f"image{int(i)}.jpg", "cut short") for i in indices if int(i) in self.bad]
        loaded = self.whole.load(good)
        return Loaded(loaded.images, loaded.indices, unreadable)


def coloured_images(per_class: int, seed: int) -> ArraySplit:
    labels = np.repeat(np.arange(len(CLASSES)), per_class)
    noise = np.random.default_rng(seed).integers(-25, 26, (len(labels), 6, 5, 3))
    images = np.clip(_COLOURS[labels][:, None, None] + noise, 0, 255).astype(np.uint8)
    return ArraySplit(images, labels.astype(np.int64))


def colours(bad_train: Sequence[int] = (), bad_test: Sequence[int] = ()) -> Dataset:
    """Five classes with 7 training and 6 test images each."""
    train, test = coloured_images(7, seed=1), coloured_images(6, seed=2)
    return Dataset("colours", CLASSES, Flawed(train, frozenset(bad_train)), Flawed(test, frozenset(bad_test)), tasks=3)


def stream_over(dataset: Dataset, **options: Any) -> Stream:
    return disjoint(dataset.train.labels, **({"tasks": 3, "chunk": 4} | options))
