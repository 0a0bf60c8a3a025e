"""Cuts a collection into train and test by a seed, or as an index file written earlier says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Cut, Split, Subset
from prol.datasets.collection import Collection


def cut_collection(
    collection: Collection, *, test_share: float, seed: int, stratified: bool, split: str | Path | None = None
) -> tuple[Split, Split, Cut]:
    """The train half, the test half, and how they were cut; both keep the order of the collection.

    Parameters
    ----------
    collection
        The images.
    test_share
        Which part is tested on, from 0 (nothing) to below 1.
    seed
        Draws the test images.
    stratified
        True cuts each class by itself: at least one test image of a class that has two or more, and never its last
        one. False draws from all images together, as papers do with ImageNet-R and ImageNet-A.
    split
        An index file (`cut_content`) whose cut is taken in place of drawing one.

    >>> from prol.datasets.base import ArraySplit
    >>> five = ArraySplit(np.zeros((5, 2, 2, 3), np.uint8), np.array([0, 0, 0, 1, 1]))
    >>> pets = Collection(("cat", "dog"), five, [f"{i}.png" for i in range(5)])
    >>> train, test, cut = cut_collection(pets, test_share=0.3, seed=0, stratified=True)
    >>> train.labels.tolist(), test.labels.tolist(), cut.rule
    ([0, 0, 1], [0, 1], '0.3 of each class, seed 0')
    """
    require_drawing(test_share, seed)
    labels, digest = collection.images.labels, names_sha256(collection.image_names)
    if split is not None:
        cut = _fitting(read_cut(split), split, len(labels), digest)
    elif stratified:
        test = _of_each_class(labels, test_share, seed)
        cut = Cut(f"{test_share:g} of each class, seed {seed}", len(labels), digest, test)
    else:
        test = _of_all(len(labels), test_share, seed)
        cut = Cut(f"{test_share:g} of all images, seed {seed}", len(labels), digest, test)
    train = np.setdiff1d(np.arange(len(labels), dtype=np.int64), cut.test, assume_unique=True)
    return Subset(collection.images, train), Subset(collection.images, cut.test), cut


def require_drawing(test_share: float, seed: int) -> None:
    """Refuses a share or a seed that cannot be drawn by."""
    if not 0 <= test_share < 1:
        raise ValueError(f"test_share must be at least 0 and below 1, got {test_share}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")


def names_sha256(names: Sequence[str]) -> str:
    """One digest over the names in their order.

    >>> names_sha256(["a", "b"])[:8], names_sha256(["b", "a"])[:8]
    ('8fb20ef6', '573bd924')
    """
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")  # a file's name may be no text, but holds no 0
    return digest.hexdigest()


def cut_content(cut: Cut) -> dict[str, Any]:
    """What an index file (`split.json`) holds, for JSON.

    >>> cut_content(Cut("by hand", 3, "ab12", np.array([2])))
    {'rule': 'by hand', 'images': 3, 'images_sha256': 'ab12', 'test': [2]}
    """
    return {
        "rule": cut.rule,
        "images": cut.images,
        "images_sha256": cut.images_sha256,
        "test": cut.test.tolist(),
    }


def read_cut(path: str | Path) -> Cut:
    """The cut an index file holds."""
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
        raise ValueError(f"{str(place)!r} is no index file ({type(error).__name__}: {error}): {_INDEX_FILE}") from None
    whole = test.ndim == 1 and (test.dtype.kind == "i" or test.size == 0)
    if not whole or len(np.unique(test)) != len(test) or np.any((test < 0) | (test >= images)):
        raise ValueError(
            f"the index file {str(place)!r} does not name each test image once by a whole number from 0 to {images - 1}"
        )
    return Cut(rule, images, digest, np.sort(test).astype(np.int64))


_INDEX_FILE = "it must be JSON with rule, images, images_sha256 and test"


def _fitting(cut: Cut, path: str | Path, images: int, digest: str) -> Cut:
    if cut.images != images:
        raise ValueError(f"the index file {str(path)!r} was written for {cut.images} images, but here are {images}")
    if cut.images_sha256 != digest:
        raise ValueError(
            f"the index file {str(path)!r} was written for images of other names (sha256 {cut.images_sha256[:12]}, "
            f"here {digest[:12]}): it fits only the files it was written for, in the same places"
        )
    return cut


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
        raise ValueError(f"{images} images cannot be cut into train and test: add images, or set test_share=0")
    order = np.random.default_rng(seed).permutation(images)
    return np.sort(order[: min(wanted, images - 1)]).astype(np.int64)
