"""Checks of images: how many a class has, and whether test images are among the training images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from prol.checks.finding import Outcome, Status, check, listed
from prol.checks.subject import Subject
from prol.data.base import Dataset, Split, Subset
from prol.data.folder import FileSplit
from prol.data.prefetch import prefetched

FEW = 10
"""Below this many images the accuracy of a class depends mostly on which images they are."""
NEAR_BITS, NEAR_COLOUR = 8, 7.0
"""Two images are near-duplicates if at most so many of 63 bits differ, and the colours of 8 x 8 parts by at most so
many levels of 255 on average."""
MUCH = 0.01
"""Share of test images with a near-duplicate from which on accuracies are not to be trusted."""
_BATCH, _READERS, _ROWS = 64, 2, 2048


@check("PC101", "Class with few images")
def few_images(subject: Subject) -> Outcome:
    counts = _counts(subject)
    if not counts:
        return Outcome.absent("how many images each class has is not recorded")
    few = {name: count for name, count in counts.items() if count < FEW}
    if not few:
        return Outcome("passed", f"each class has {min(counts.values()):,} training images or more")
    places = tuple(f"{name}: {count}" for name, count in sorted(few.items(), key=lambda one: one[1]))
    status: Status = "issue" if min(few.values()) < 2 else "tip"
    classes = f"{len(few):,} of {len(counts):,} classes have" if len(few) > 1 else "1 class has"
    return Outcome(status, f"{classes} fewer than {FEW} training images: {listed(places)}", places)


def _counts(subject: Subject) -> dict[str, int]:
    """The fewest training images of each class in any run or learner, or those of the folder."""
    if subject.images is not None and not subject.runs:
        names, labels = subject.images.class_names, subject.images.train.labels
        return dict(zip(names, np.bincount(labels, minlength=len(names)).tolist(), strict=True))
    fewest: dict[str, int] = {}
    for learner in subject.learners:
        for name, count in (learner.counts or {}).items():
            fewest[name] = min(count, fewest.get(name, count))
    return fewest


@check("PC102", "Near-duplicates across training and test")
def near_duplicates(subject: Subject) -> Outcome:
    if subject.images is None:
        return Outcome.absent("the images are not here: check their folder")
    train, test = (_Hashed.of(split, subject.images) for split in (subject.images.train, subject.images.test))
    if not (train.names and test.names):
        return Outcome.absent("there are no test images beside training images")
    pairs = list(_pairs(test, train))
    said = f"of {len(test.names):,} test images"
    if not pairs:
        return Outcome("passed", f"none {said} is nearly a training image")
    places = tuple(f"{test.names[one]} ~ {train.names[other]}" for one, other in pairs)
    mixed = sum(bool(test.labels[one] != train.labels[other]) for one, other in pairs)
    share = len(pairs) / len(test.names)
    contradiction = f", {mixed:,} of them of another class" if mixed else ""
    message = f"{len(pairs):,} {said} ({share:.1%}) are nearly a training image{contradiction}: {listed(places, 3)}"
    return Outcome("issue" if share >= MUCH or mixed else "tip", message, places)


@dataclass(frozen=True)
class _Hashed:
    """Images that could be read: signs `[N, 63]` of their lowest frequencies, and colours of 8 x 8 parts `[N, 192]`."""

    names: list[str]
    labels: NDArray[np.int64]
    signs: NDArray[np.float32]
    colours: NDArray[np.float32]

    @classmethod
    def of(cls, split: Split, dataset: Dataset) -> _Hashed:
        names, rows, small = [], list[int](), list[NDArray[np.float32]]()
        named = _names(split, np.arange(len(split.labels)), dataset)
        batches = np.array_split(np.arange(len(split.labels)), range(_BATCH, len(split.labels), _BATCH))
        with closing(prefetched(split, batches, _READERS)) as chunks:
            for loaded in chunks:
                small += [_thumbnail(image) for image in loaded.images]
                rows += loaded.indices.tolist()
        names = [named[row] for row in rows]
        rgb = np.stack(small) if small else np.zeros((0, 32, 32, 3), dtype=np.float32)
        return cls(names, split.labels[rows], _signs(rgb.mean(3)), _colours(rgb))


def _thumbnail(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """32 x 32 pixels, `[32, 32, 3]`; a larger image is averaged."""
    return np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.BILINEAR), dtype=np.float32)


def _colours(rgb: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of 8 x 8 parts beside that of the whole image, so that a brighter copy is still a copy."""
    parts = rgb.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4)).reshape(-1, 192)
    relative: NDArray[np.float32] = parts - parts.mean(axis=1, keepdims=True)
    return relative


def _signs(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Whether each of the 63 lowest frequencies of a cosine transform is above their median: 1 or -1, `[N, 63]`."""
    place, frequency = np.arange(32), np.arange(8)[:, None]
    cosines = np.cos(np.pi * (2 * place + 1) * frequency / 64)
    low = (cosines @ grey @ cosines.T).reshape(len(grey), 64)[:, 1:]
    return np.where(low > np.median(low, axis=1, keepdims=True), 1, -1).astype(np.float32)


def _pairs(test: _Hashed, train: _Hashed) -> Iterator[tuple[int, int]]:
    """Each test image with the most similar training image, if that is a near-duplicate."""
    for start in range(0, len(test.names), _ROWS):
        different = (63 - test.signs[start : start + _ROWS] @ train.signs.T) / 2
        for row, bits in enumerate(different, start):
            near = np.flatnonzero(bits <= NEAR_BITS)
            if not len(near):
                continue
            distance = np.abs(train.colours[near] - test.colours[row]).mean(axis=1)
            if distance.min() <= NEAR_COLOUR:
                yield row, int(near[distance.argmin()])


def _names(split: Split, rows: NDArray[np.int64], dataset: Dataset) -> list[str]:
    """How images are called: files by class and name, others by number."""
    if isinstance(split, Subset):
        return _names(split.whole, split.rows[rows], dataset)
    if isinstance(split, FileSplit):
        return [str(Path(dataset.class_names[split.labels[row]], split.paths[row].name)) for row in rows]
    return [f"image {row}" for row in rows]
