"""Splits a collection into train and test: by a seed, by an index file, or for development within the train images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Dataset, Split, Subset, TrainTestSplit, default_tasks

_DEVELOPMENT_SEED = 20_251_019  # the same development split for every seed of a run
_DEVELOPMENT_PARTS = 5


@dataclass(frozen=True)
class Collection:
    """Images in a fixed order, not yet split into train and test.

    `image_names`, read once, has a stable name per image, such as "CLASS/file.jpg" or "shard.parquet#row". An index
    file is bound to these names.
    """

    class_names: tuple[str, ...]
    images: Split
    image_names: Iterable[str]
    notes: tuple[str, ...] = ()


def split_collection(
    name: str,
    collection: Collection,
    *,
    test_share: float,
    seed: int,
    stratified: bool,
    split: str | Path | None = None,
) -> Dataset:
    """The data set `name` with random train and test splits; both are in the order of the collection.

    Args:
        name: name of the data set.
        collection: the images.
        test_share: the fraction of test images, from 0 (none) to below 1.
        seed: draws the test images.
        stratified: True splits each class: at least one test image of a class that has two or more, and at least one
            train image. False draws from all images together, as papers do with ImageNet-R and ImageNet-A.
        split: an index file (`split_content`) to use instead of a random split.

    >>> from prol.data.base import ArraySplit
    >>> five = ArraySplit(np.zeros((5, 2, 2, 3), np.uint8), np.array([0, 0, 0, 1, 1]))
    >>> pets = Collection(("cat", "dog"), five, [f"{i}.png" for i in range(5)])
    >>> data = split_collection("pets", pets, test_share=0.3, seed=0, stratified=True)
    >>> data.train.labels.tolist(), data.test.labels.tolist(), data.split.rule
    ([0, 0, 1], [0, 1], '0.3 of each class, seed 0')
    """
    require_split_options(test_share, seed)
    labels, digest = collection.images.labels, names_sha256(collection.image_names)
    if split is not None:
        record = read_split(split)
        _require_same_images(record, split, len(labels), digest)
    else:
        test = _of_each_class(labels, test_share, seed) if stratified else _of_all(len(labels), test_share, seed)
        rule = f"{test_share:g} of {'each class' if stratified else 'all images'}, seed {seed}"
        record = TrainTestSplit(rule, len(labels), digest, test)
    train = np.setdiff1d(np.arange(len(labels), dtype=np.int64), record.test, assume_unique=True)
    return Dataset(
        name=name,
        class_names=collection.class_names,
        train=Subset(collection.images, train),
        test=Subset(collection.images, record.test),
        tasks=default_tasks(len(np.unique(labels))),
        split=record,
        notes=collection.notes,
    )


def require_split_options(test_share: float, seed: int) -> None:
    if not 0 <= test_share < 1:
        raise ValueError(f"test_share must be at least 0 and below 1, got {test_share}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")


def names_sha256(names: Iterable[str]) -> str:
    """One digest of the names in their order.

    >>> names_sha256(["a", "b"])[:8], names_sha256(["b", "a"])[:8]
    ('8fb20ef6', '573bd924')
    """
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")  # a file name may be undecodable, but has no \0
    return digest.hexdigest()


def split_content(split: TrainTestSplit) -> dict[str, Any]:
    """The content of an index file (`split.json`).

    >>> split_content(TrainTestSplit("by hand", 3, "ab12", np.array([2])))
    {'rule': 'by hand', 'images': 3, 'images_sha256': 'ab12', 'test': [2]}
    """
    return vars(split) | {"test": split.test.tolist()}


def read_split(path: str | Path) -> TrainTestSplit:
    """Reads an index file."""
    place = Path(path).expanduser()
    if not place.is_file():
        raise FileNotFoundError(
            f"no index file {str(place)!r}: give the split.json of an earlier run, or leave split out"
        )
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
        rule, images, digest = str(content["rule"]), int(content["images"]), str(content["images_sha256"])
        test = np.array(content["test"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{str(place)!r} is not an index file ({type(error).__name__}: {error}): it must be JSON with rule, "
            "images, images_sha256 and test"
        ) from None
    whole = test.ndim == 1 and (test.dtype.kind == "i" or test.size == 0)
    if not whole or len(np.unique(test)) != len(test) or np.any((test < 0) | (test >= images)):
        raise ValueError(
            f"the index file {str(place)!r} does not name each test image once by a whole number from 0 to {images - 1}"
        )
    return TrainTestSplit(rule, images, digest, np.sort(test).astype(np.int64))


def development(dataset: Dataset) -> Dataset:
    """A fifth of each class's train images to train on and another fifth to test on, for choosing options.

    The test images of the data set are never opened. Each class has at least one image in both splits.
    """
    labels = dataset.train.labels
    random = np.random.default_rng(_DEVELOPMENT_SEED)
    parts: tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]] = ([], [])
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        if len(rows) < 2:
            raise ValueError(f"class {label} has one training image: a development split needs two, leave it out")
        count = max(1, len(rows) // _DEVELOPMENT_PARTS)
        for part, chosen in zip(parts, (rows[:count], rows[count : 2 * count]), strict=True):
            part.append(chosen)
    train, test = (np.sort(np.concatenate(part)) for part in parts)
    note = (
        f"development split: {len(train)} training images to learn and {len(test)} others to test; "
        "the test images are not touched"
    )
    return replace(
        dataset, train=Subset(dataset.train, train), test=Subset(dataset.train, test), notes=(*dataset.notes, note)
    )


def _require_same_images(split: TrainTestSplit, path: str | Path, images: int, digest: str) -> None:
    if split.images != images:
        raise ValueError(f"the index file {str(path)!r} was written for {split.images} images, but here are {images}")
    if split.images_sha256 != digest:
        raise ValueError(
            f"the index file {str(path)!r} was written for images of other names (sha256 {split.images_sha256[:12]}, "
            f"here {digest[:12]}): it fits only the files it was written for, in the same places"
        )


def _of_each_class(labels: NDArray[np.int64], test_share: float, seed: int) -> NDArray[np.int64]:
    random = np.random.default_rng(seed)
    chosen = [np.zeros(0, dtype=np.int64)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        order = random.permutation(len(rows))
        wanted = max(1, round(len(rows) * test_share)) if test_share else 0
        chosen.append(rows[order[: min(wanted, len(rows) - 1)]])
    test = np.sort(np.concatenate(chosen))
    if test_share and not len(test):
        raise ValueError("every class has a single image, so none is left to test on: add images, or set test_share=0")
    return test


def _of_all(images: int, test_share: float, seed: int) -> NDArray[np.int64]:
    wanted = max(1, round(images * test_share)) if test_share else 0
    if test_share and images < 2:
        raise ValueError(f"{images} images cannot be split into train and test: add images, or set test_share=0")
    order = np.random.default_rng(seed).permutation(images)
    return np.sort(order[: min(wanted, images - 1)]).astype(np.int64)
