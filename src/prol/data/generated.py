"""Noise in the sizes of ImageNet-R's tasks, for measuring speed without any download."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Dataset, Loaded

TRAIN_SIZES = (2543, 2901, 1741, 2324, 2865, 2219, 2280, 1800, 2500, 2827)
TEST_SIZES = (688, 705, 434, 609, 654, 551, 562, 477, 610, 710)
"""The number of images of each of ten tasks, as in PROL's paper."""


@dataclass(frozen=True)
class GeneratedSplit:
    """Random images, generated from their index when they are loaded; none is stored."""

    labels: NDArray[np.int64]
    side: int
    seed: tuple[int, int]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        shape = (self.side, self.side, 3)
        generators = [np.random.default_rng([*self.seed, int(index)]) for index in wanted]
        return Loaded([random.integers(0, 256, shape, dtype=np.uint8) for random in generators], wanted)


def generated(
    classes: int = 200,
    side: int = 224,
    test_per_class: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
) -> Dataset:
    """Noise in the sizes of ImageNet-R's ten tasks, for measuring speed: there is nothing in it to learn.

    Args:
        classes: the number of classes, split over ten tasks; the images of a task are distributed evenly over its
            classes.
        side: side of the square images, in pixels.
        test_per_class: test images of each class; as in ImageNet-R by default.
        seed: draws the pixels.
        data: must be None: images are generated when they are loaded.

    >>> noise = generated()
    >>> len(noise.train.labels), len(noise.test.labels), len(noise.class_names)
    (24000, 6000, 200)
    """
    if data is not None:
        raise ValueError(f"data set 'generated' takes no data, got {str(data)!r}; for your own use 'folder'")
    for name, value, least in (("classes", classes, len(TRAIN_SIZES)), ("side", side, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if test_per_class is not None and test_per_class < 1:
        raise ValueError(f"test_per_class must be at least 1, got {test_per_class}")
    test = _spread(TEST_SIZES, classes)
    if test_per_class is not None:
        test = np.repeat(np.arange(classes, dtype=np.int64), test_per_class)
    digits = len(str(classes - 1))
    return Dataset(
        name="generated",
        class_names=tuple(f"noise {number:0{digits}d}" for number in range(classes)),
        train=GeneratedSplit(_spread(TRAIN_SIZES, classes), side, (seed, 0)),
        test=GeneratedSplit(test, side, (seed, 1)),
        tasks=len(TRAIN_SIZES),
        licence="Noise; nobody's",
    )


def _spread(sizes: Sequence[int], classes: int) -> NDArray[np.int64]:
    """The label of each image: the images of each task are distributed evenly over its classes."""
    tasks = np.array_split(np.arange(classes, dtype=np.int64), len(sizes))
    return np.concatenate([np.sort(np.resize(own, size)) for own, size in zip(tasks, sizes, strict=True)])
