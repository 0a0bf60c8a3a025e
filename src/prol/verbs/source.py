"""Where images come from: folders, parquet files, built-in data, arrays, data sets of torch, batches of a loader."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prol import registry
from prol.backbones.images import read_images
from prol.classes import Label, read_labels, require_label_each
from prol.data.base import Dataset, Loaded, Split, Subset, Unreadable
from prol.data.folder import IMAGE_ENDINGS, FileSplit, folder
from prol.data.parquet import HUB, parquet
from prol.data.prefetch import prefetched
from prol.data.split import Collection, split_collection
from prol.integrations.tensor_batches import to_uint8
from prol.options import did_you_mean

Batch = tuple[list[Any], list[Label]]
"""Images, and the label of each."""
_READERS = 2
_ACCEPTED = (
    "a folder of CLASS/*.jpg, parquet files, a name that prol.list_datasets() lists, (images, labels), a data set of "
    "prol or torch, or an iterable of batches (images, labels)"
)


@dataclass(frozen=True)
class Source:
    """Images that can be read in any order, to learn and to test on; `classes` are the labels of class numbers."""

    name: str
    classes: tuple[Label, ...]
    train: Split
    test: Split

    @classmethod
    def of(cls, dataset: Dataset, classes: Sequence[Label] | None = None) -> Source:
        for note in dataset.notes:
            _warn(note)
        names = tuple(dataset.class_names if classes is None else classes)
        return cls(dataset.name, names, dataset.train, dataset.test)

    def batches(self, split: Split, order: NDArray[np.int64], size: int) -> Iterator[Batch]:
        """Images of a split in this order, `size` at a time, without those that cannot be read: of these it warns."""
        for images, places in self.read(split, order, size):
            yield images, [self.classes[number] for number in split.labels[places]]

    def read(self, split: Split, order: NDArray[np.int64], size: int) -> Iterator[tuple[list[Any], NDArray[np.int64]]]:
        """The same with the places of the images in the split instead of their labels."""
        wanted = [order[start : start + size] for start in range(0, len(order), size)]
        with closing(prefetched(split, wanted, _READERS)) as chunks:
            for loaded in chunks:
                for bad in loaded.unreadable:
                    _warn(f"skipped unreadable image {bad.path} ({bad.reason})")
                if loaded.images:
                    yield list(loaded.images), loaded.indices


def image_id(split: Split, place: int) -> str | int:
    """The path of an image, or its number where it is not a file of its own."""
    if isinstance(split, Subset):
        return image_id(split.whole, int(split.rows[place]))
    return str(split.paths[place]) if isinstance(split, FileSplit) else place


@dataclass(frozen=True)
class InMemory:
    """A split whose images are in memory, or are returned one by one; each is anything that `learn` takes."""

    images: Sequence[Any]
    labels: NDArray[np.int64]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        images, read, unreadable = [], [], []
        for index in np.asarray(indices, dtype=np.int64).tolist():
            try:
                [pixels] = read_images([as_uint8(self.images[index])])
            except (ValueError, OSError) as error:
                unreadable.append(Unreadable(index, f"number {index}", str(error)))
            else:
                images.append(pixels.movedim(0, -1).numpy())
                read.append(index)
        return Loaded(images, np.array(read, dtype=np.int64), unreadable)


@dataclass(frozen=True)
class _Items(Sequence[Any]):
    """The images of a data set of torch, whose items are (image, label)."""

    whole: Any

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, index: Any) -> Any:
        return self.whole[index][0]


def as_uint8(image: Any) -> Any:
    """Tensors of floats from 0 to 1, as torchvision's `ToTensor` makes them, as uint8; anything else as it is."""
    floats = isinstance(image, torch.Tensor) and image.is_floating_point()
    return to_uint8(image) if floats else image


def open_source(source: Any, seed: int, test_share: float) -> Source | Iterable[Any]:
    """The images behind what a user gives; what can only be iterated is returned as it is.

    `test_share` of each class is for testing, drawn by `seed`, where the source has no test images of its own.
    """
    if isinstance(source, Dataset):
        return Source.of(source)
    if isinstance(source, str | os.PathLike):
        return Source.of(_open_place(os.fspath(source), seed, test_share))
    if isinstance(source, tuple):
        if len(source) != 2:
            raise ValueError(f"images and labels must be a pair (images, labels), got {len(source)} values")
        images, labels = source
        return _collected("images", images, read_labels(labels), seed, test_share)
    if isinstance(source, torch.utils.data.Dataset) and not isinstance(source, torch.utils.data.IterableDataset):
        return _collected(type(source).__name__, _Items(source), _labels_of(source), seed, test_share)
    if isinstance(source, Iterable) and not isinstance(source, np.ndarray | torch.Tensor):
        return source
    raise ValueError(f"images must come from {_ACCEPTED}; got {type(source).__name__}")


def _open_place(place: str, seed: int, test_share: float) -> Dataset:
    path = Path(place).expanduser()
    if place.startswith(HUB):
        return parquet(place, seed=seed, test_share=test_share)
    if not path.exists():
        if place in registry.names("datasets"):
            return registry.dataset(place)()
        hint = did_you_mean(place, registry.names("datasets"))
        raise FileNotFoundError(f"there is no folder or file {place!r}{hint}; images must come from {_ACCEPTED}")
    if path.suffix.lower() in IMAGE_ENDINGS and path.is_file():
        raise ValueError(f"{place!r} is one image; images must come from {_ACCEPTED}")
    files = path.is_file() or any(True for pattern in ("*.parquet", "*/*.parquet") for _ in path.glob(pattern))
    return (parquet if files else folder)(path, seed=seed, test_share=test_share)


def _warn(text: str) -> None:
    """A warning at the caller's own line, however many functions of prol are between."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "prol":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _labels_of(source: Any) -> list[Label]:
    """The labels of a data set of torch, by name where it names its classes."""
    targets = getattr(source, "targets", None)
    if targets is None:
        targets = [label for _, label in (source[index] for index in range(len(source)))]
    labels = read_labels([int(one) if isinstance(one, torch.Tensor) else one for one in targets])
    names = getattr(source, "classes", None)
    return labels if names is None else [names[one] if isinstance(one, int) else one for one in labels]


def _collected(name: str, images: Sequence[Any], labels: list[Label], seed: int, test_share: float) -> Source:
    require_label_each(len(images), labels)
    classes = tuple(dict.fromkeys(labels))
    number = {label: row for row, label in enumerate(classes)}
    split = InMemory(images, np.array([number[label] for label in labels], dtype=np.int64))
    collection = Collection(tuple(map(repr, classes)), split, map(str, range(len(labels))))
    return Source.of(split_collection(name, collection, test_share=test_share, seed=seed, stratified=True), classes)
