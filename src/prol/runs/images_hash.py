"""Whether a run's images are still those it began with, without decoding any."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.data import ArraySplit, Dataset, Split, Subset
from prol.data.image_files import FileSplit
from prol.data.parquet_images import ParquetSplit


def images_sha256(dataset: Dataset) -> str:
    """Over names and sizes of image files, or over pixels that lie in memory; labels have a hash of their own."""
    digest = hashlib.sha256()
    for half in (dataset.train, dataset.test):
        _take_in(digest, half, None)
    return digest.hexdigest()


def _take_in(digest: hashlib._Hash, split: Split, rows: NDArray[np.int64] | None) -> None:
    """Takes in some images of a split, all where `rows` is None."""
    match split:
        case Subset(whole=whole, rows=own):
            _take_in(digest, whole, own if rows is None else own[rows])
        case ArraySplit(images=images):
            digest.update(np.ascontiguousarray(images if rows is None else images[rows]).data)
        case FileSplit(paths=paths):
            for row in range(len(paths)) if rows is None else rows.tolist():
                digest.update(_name_and_size(paths[row]))
        case ParquetSplit(files=files):
            for path in files:
                digest.update(_name_and_size(path))


def _name_and_size(path: Path) -> bytes:
    try:
        size = path.stat().st_size
    except OSError:  # a run names what it cannot read and goes on
        size = -1
    return f"{path.name}\0{size}\0".encode(errors="surrogateescape")
