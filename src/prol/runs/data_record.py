"""What a run records of its data: the order of its classes, and a hash of its images."""

from __future__ import annotations

import hashlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.data import ArraySplit, Dataset, Split, Subset
from prol.data.image_files import FileSplit
from prol.data.parquet_images import ParquetSplit
from prol.data.streams import Stream, class_presence, summarise_tasks

_MOST_BINS = 100


def stream_content(dataset: Dataset, stream: Stream) -> dict[str, Any]:
    """The content of `stream.json`: class names by task, and the samples per class in equal parts of the stream."""
    labels = dataset.train.labels
    sizes = [task.samples for task in summarise_tasks(stream, labels)]
    counts = class_presence(stream, labels, min(_MOST_BINS, sum(sizes)))
    return {
        "samples": sum(sizes),
        "task_starts": list(accumulate(sizes[:-1], initial=0)),
        "classes": [dataset.class_names[number] for group in stream.task_classes for number in group],
        # Text: indented JSON would give each number its own line.
        "presence": [" ".join(map(str, row)) for row in counts.tolist()],
    }


def images_sha256(dataset: Dataset) -> str:
    """A hash over names and sizes of image files, or over pixels in memory; no image is decoded."""
    digest = hashlib.sha256()
    for half in (dataset.train, dataset.test):
        _update(digest, half, None)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, split: Split, rows: NDArray[np.int64] | None) -> None:
    """Hashes the given images of a split, all if `rows` is None."""
    match split:
        case Subset(whole=whole, rows=own):
            _update(digest, whole, own if rows is None else own[rows])
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
    except OSError:  # a run reports unreadable images and continues
        size = -1
    return f"{path.name}\0{size}\0".encode(errors="surrogateescape")
