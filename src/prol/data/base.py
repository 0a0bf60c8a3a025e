"""A data set: images, labels and class names, independent of tasks and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be decoded: its location, and the reason."""

    index: int
    path: str
    reason: str


@dataclass(frozen=True)
class Loaded:
    """Decoded images in the requested order, without those that could not be read."""

    images: list[NDArray[np.uint8]]
    indices: NDArray[np.int64]
    unreadable: list[Unreadable] = field(default_factory=list)


class Split(Protocol):
    """The train or the test images of a data set. `labels[i]` is the class number of image i."""

    @property
    def labels(self) -> NDArray[np.int64]: ...

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        """Decodes images as uint8 `[H, W, 3]`, sizes as stored; unreadable ones are reported, never raised."""
        ...


@dataclass(frozen=True)
class TrainTestSplit:
    """How a collection was split into train and test, if its publisher did not define the splits.

    `images` is the size of the collection and `images_sha256` the digest of its image names in order; `test` are
    indices into the collection.
    """

    rule: str
    images: int
    images_sha256: str
    test: NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Dataset:
    """Train and test images with one list of class names.

    `tasks` is the usual number of tasks; `split` says how train and test were drawn, None if the publisher defined
    them; `notes` are sentences that a user should read before a run, such as one that lists classes without images;
    `found_at` is the folder of a copy that was searched for.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split
    tasks: int = 10
    licence: str = ""
    split: TrainTestSplit | None = None
    notes: tuple[str, ...] = ()
    found_at: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.class_names)) < len(self.class_names):
            twice = sorted({name for name in self.class_names if self.class_names.count(name) > 1})
            raise ValueError(
                f"data set {self.name!r} has several classes of one name: {', '.join(twice)}; rename them, because a "
                "learner identifies classes by name"
            )

    @property
    def cut(self) -> TrainTestSplit | None:
        """Deprecated name of `split`; will be removed in the next version."""
        return self.split

    def __repr__(self) -> str:
        """Name, images and classes; the images themselves may be in memory."""
        train, test = len(self.train.labels), len(self.test.labels)
        classes = len(self.class_names)
        return f"<data set {self.name}: {train:,} training and {test:,} test images of {classes:,} classes>"

    def limited(self, per_class: int) -> Dataset:
        """The first `per_class` images of each class, in train and test."""
        if per_class < 1:
            raise ValueError(f"limit per class must be at least 1, got {per_class}")
        return replace(self, train=Subset.first(self.train, per_class), test=Subset.first(self.test, per_class))


@dataclass(frozen=True)
class ArraySplit:
    """Images in memory, uint8 `[N, H, W, 3]`."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        return Loaded(list(self.images[wanted]), wanted)


@dataclass(frozen=True)
class Subset:
    """Some images of another split, renumbered."""

    whole: Split
    rows: NDArray[np.int64]

    @classmethod
    def first(cls, whole: Split, per_class: int) -> Subset:
        rows = [np.flatnonzero(whole.labels == label)[:per_class] for label in np.unique(whole.labels)]
        return cls(whole, np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64))

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        return self.whole.labels[self.rows]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        loaded = self.whole.load(self.rows[wanted])
        number = {int(row): int(i) for row, i in zip(self.rows[wanted], wanted, strict=True)}
        return Loaded(
            loaded.images,
            np.array([number[int(row)] for row in loaded.indices], dtype=np.int64),
            [replace(bad, index=number[bad.index]) for bad in loaded.unreadable],
        )


def default_tasks(classes: int) -> int:
    """The number of tasks of a user's own data set: two classes or more per task, at most ten tasks."""
    return min(10, max(1, classes // 2))


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for a message: the first `most`, and the number of the others.

    >>> listed(["cat", "dog", "emu"], most=2)
    'cat, dog and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def note_on_empty(
    names: Sequence[str], *, one: str = "class", many: str = "classes", where: str = ""
) -> tuple[str, ...]:
    """The note that lists classes without images, if there are any.

    >>> note_on_empty(["cat", "dog"])
    ('2 classes without images are left out: cat, dog',)
    """
    what = f"1 {one}{where} without images is" if len(names) == 1 else f"{len(names)} {many}{where} without images are"
    return (f"{what} left out: {listed(names, most=20)}",) if names else ()
