"""A small stream and exam carved from the training images, on which settings are chosen without a look at the test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Dataset, Subset

SHARE = 5
"""One image in so many is learnt, and as many others are asked."""

_SEED = 20_251_019  # the split is the same for every seed of a run: seeds order it, they do not choose it


def development(dataset: Dataset) -> Dataset:
    """A fifth of each class's training images as the training half, another fifth as the test half.

    The data set's own test half is never opened. Each class keeps at least one image in both halves.
    """
    train, test = _two_fifths(dataset.train.labels)
    note = (
        f"development split: {len(train)} training images to learn and {len(test)} others to test; "
        "the test images are not touched"
    )
    return replace(
        dataset,
        train=Subset(dataset.train, train),
        test=Subset(dataset.train, test),
        notes=(*dataset.notes, note),
    )


def _two_fifths(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Image numbers to learn and to ask, in the order of the training half."""
    random = np.random.default_rng(_SEED)
    learnt, asked = [], []
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        if len(rows) < 2:
            raise ValueError(f"class {label} has one training image: a development split needs two, leave it out")
        count = max(1, len(rows) // SHARE)
        learnt.append(rows[:count])
        asked.append(rows[count : 2 * count])
    return np.sort(np.concatenate(learnt)), np.sort(np.concatenate(asked))
