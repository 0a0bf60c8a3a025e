"""Parquet files as the Hugging Face hub has them: one or many, cut into train and test by their owner or by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Dataset
from prol.datasets.collection import Collection, without_images
from prol.datasets.cutting import cut_collection, require_drawing
from prol.datasets.parquet_classes import agreed_names, class_numbers
from prol.datasets.parquet_files import Found, find_parquet
from prol.datasets.parquet_images import ParquetSplit, RowNames
from prol.datasets.parquet_labels import read_shard


def parquet(
    data: str | Path | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    image_column: str | None = None,
    label_column: str | None = None,
    split: str | None = None,
) -> Dataset:
    """Images in parquet files with a label each; classes are named by the file, by text labels, or by number.

    Labels are read at once. Encoded images are copied to a nameless file on disk at the first `load`, so that any order
    of reading is cheap; see docs/reading.md.

    Parameters
    ----------
    data
        A parquet file; a folder with `train*.parquet` and `test*.parquet` or `validation*.parquet`, at any depth; a
        folder with parquet files of other names, which are one collection; or "hub:OWNER/NAME".
    seed
        Draws the test images of each class, where the owner gave no halves.
    test_share
        Which part of each class is tested on, where the owner gave no halves: at least one image of a class that has
        two or more. 0 keeps every image for training.
    image_column
        The column with encoded images, where it is not called image or img.
    label_column
        The column with labels, where it is not called label, labels, fine_label, class, target or wnid.
    split
        An index file whose cut is taken in place of drawing one.

    >>> import io, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (9, 7)).save(file, "PNG")
    >>> table = pa.table({"image": [{"bytes": file.getvalue(), "path": None}] * 10, "label": ["cat", "dog"] * 5})
    >>> path = Path(tempfile.mkdtemp(), "pets.parquet")
    >>> pq.write_table(table, path)
    >>> pets = parquet(path)
    >>> pets.class_names, len(pets.train.labels), len(pets.test.labels), pets.train.load([0]).images[0].shape
    (('cat', 'dog'), 8, 2, (7, 9, 3))
    """
    require_drawing(test_share, seed)
    found = find_parquet(data)
    if found.test:
        if split is not None:
            raise ValueError(f"{str(data)!r} has halves of its own, so split={split!r} cannot be used: leave it out")
        return _given_halves(found, image_column, label_column)
    collection = read_parquet(found.train, image_column, label_column)
    train, test, cut = cut_collection(collection, test_share=test_share, seed=seed, stratified=True, split=split)
    tasks = _tasks(collection.images.labels)
    return Dataset("parquet", collection.class_names, train, test, tasks, cut=cut, notes=collection.notes)


def read_parquet(files: Sequence[Path], image_column: str | None = None, label_column: str | None = None) -> Collection:
    """All rows of one or many files, in the order of the files, as one collection.

    Parameters
    ----------
    files
        The parquet files. Those that name their classes must name the same ones.
    image_column
        The column with encoded images; None takes the first known name.
    label_column
        The column with labels; None takes the first known name.
    """
    shards = [read_shard(path, image_column, label_column) for path in files]
    names = agreed_names(shards)
    images = ParquetSplit(shards, class_numbers(shards, names))
    rows = RowNames([shard.path for shard in shards], [len(shard.labels) for shard in shards])
    return Collection(names, images, rows, _notes(names, images.labels))


def _given_halves(found: Found, image_column: str | None, label_column: str | None) -> Dataset:
    train_shards, test_shards = (
        [read_shard(path, image_column, label_column) for path in files] for files in (found.train, found.test)
    )
    names = agreed_names([*train_shards, *test_shards])
    train, test = (ParquetSplit(shards, class_numbers(shards, names)) for shards in (train_shards, test_shards))
    stray = [names[label] for label in np.setdiff1d(test.labels, train.labels)]
    if stray:
        raise ValueError(
            f"classes with test images but no train images in {str(found.train[0].parent)!r}: {', '.join(stray)}; "
            f"add the files with their train images, or pass the train files alone to have them cut by a seed"
        )
    notes = (*found.notes, *_notes(names, train.labels))
    return Dataset("parquet", names, train, test, _tasks(train.labels), notes=notes)


def _notes(names: tuple[str, ...], labels: NDArray[np.int64]) -> tuple[str, ...]:
    return without_images("classes", [names[i] for i in np.setdiff1d(np.arange(len(names)), labels)])


def _tasks(labels: NDArray[np.int64]) -> int:
    return min(10, max(1, len(np.unique(labels)) // 2))
