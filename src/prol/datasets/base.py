"""What a data set is: images, labels and class names. It knows nothing of tasks or models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be decoded: where it is, and why."""

    index: int
    path: str
    reason: str


@dataclass(frozen=True)
class Loaded:
    """Decoded images in the order asked for, without those that could not be read."""

    images: list[NDArray[np.uint8]]
    indices: NDArray[np.int64]
    unreadable: list[Unreadable] = field(default_factory=list)


class Split(Protocol):
    """One half of a data set. `labels[i]` is the class number of image i."""

    @property
    def labels(self) -> NDArray[np.int64]: ...

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        """Decodes images as uint8 `[H, W, 3]`, sizes as stored; unreadable ones are named, never raised."""
        ...


@dataclass(frozen=True)
class Cut:
    """How one collection was cut into train and test, where that was not done by its owner.

    `images` counts the collection and `images_sha256` is over the names in its own order; `test` are numbers there.
    """

    rule: str
    images: int
    images_sha256: str
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Train and test images with one list of class names.

    `tasks` is the usual number of tasks; `cut` says how the halves were drawn, None where the owner gave them; `notes`
    are sentences a user should read before a run, such as one that names classes without images; `found_at` is the
    folder of a copy that was looked for.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split
    tasks: int = 10
    licence: str = ""
    cut: Cut | None = None
    notes: tuple[str, ...] = ()
    found_at: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.class_names)) < len(self.class_names):
            twice = sorted({name for name in self.class_names if self.class_names.count(name) > 1})
            raise ValueError(
                f"data set {self.name!r} has several classes of one name: {', '.join(twice)}; give each its own, for a "
                "learner knows classes by their names"
            )

    def limited(self, per_class: int) -> Dataset:
        """The first `per_class` images of each class, in both halves."""
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
    """Some images of another split, under new numbers."""

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
