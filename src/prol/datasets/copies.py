"""Copies of published data sets as people keep them, and what they lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Dataset
from prol.datasets.collection import Collection
from prol.datasets.finding import Layout
from prol.datasets.folder import folder

_TASKS = 10


@dataclass(frozen=True)
class Published:
    """What the complete data set holds. The numbers per task are of the first tasks of ten, where known."""

    classes: int
    images: int
    train_per_task: tuple[int, ...] = ()
    test_per_task: tuple[int, ...] = ()
    images_per_task: tuple[int, ...] = ()


def finished(copy: Dataset, name: str, licence: str, published: Published) -> Dataset:
    """The data set under its own name, with notes on how the copy differs from what was published."""
    notes = (*copy.notes, *differences(copy, published))
    return replace(copy, name=name, tasks=_TASKS, licence=licence, notes=notes)


def differences(copy: Dataset, published: Published) -> tuple[str, ...]:
    """Sentences on what a copy lacks or has too much of; none where it is as published."""
    train, test = copy.train.labels, copy.test.labels
    both = np.concatenate([train, test])
    classes = len(np.unique(both))
    if (classes, len(both)) != (published.classes, published.images):
        return (
            f"this copy is not the published data set: it has {classes} of {published.classes} classes "
            f"and {len(both):,} of {published.images:,} images",
        )
    notes = []
    for what, labels, wanted in (
        ("train images", train, published.train_per_task),
        ("test images", test, published.test_per_task),
        ("images", both, published.images_per_task),
    ):
        found = images_per_task(labels)[: len(wanted)]
        if found != list(wanted):
            notes.append(
                f"this copy is not the published data set: its first tasks have {_listed(found)} {what} "
                f"in place of {_listed(wanted)}"
            )
    return tuple(notes)


def images_per_task(labels: NDArray[np.int64], tasks: int = _TASKS) -> list[int]:
    """How many images each task has when the classes are cut into tasks by their numbers.

    >>> images_per_task(np.array([0, 0, 1, 2, 2, 2, 3]), tasks=2)
    [3, 4]
    """
    counts = np.unique(labels, return_counts=True)[1]
    return [int(of_task.sum()) for of_task in np.array_split(counts, tasks)]


def refuse_split(name: str, split: str | None) -> None:
    """Refuses an index file for a data set whose halves are published."""
    if split is not None:
        raise ValueError(f"data set {name!r} has published halves and takes no index file, got split={split!r}")


def has_image_folders(root: Path) -> bool:
    """Whether `train/` and `test/` both hold folders."""
    return all(
        (root / half).is_dir() and any(path.is_dir() for path in (root / half).iterdir()) for half in ("train", "test")
    )


def read_image_folders(root: Path) -> Dataset:
    """The images in `train/CLASS` and `test/CLASS`."""
    return folder(root)


IMAGE_FOLDERS = Layout("image folders train/CLASS and test/CLASS", has_image_folders, read_image_folders)


def parquet_halves(label_columns: Sequence[str] = ()) -> Layout:
    """Parquet files of both halves; `label_columns` are tried before the usual ones."""
    return Layout(
        "parquet files train*.parquet and test*.parquet",
        has_parquet_halves,
        lambda root: read_parquet_halves(root, label_columns),
    )


def parquet_files(root: Path, half: str = "") -> list[Path]:
    """The parquet files named after `half`, in a folder or in its folders `train/` and `test/`.

    Not at any depth, as the folder around a data set may hold others too.
    """
    places = [root, root / "train", root / "test"]
    found = [path for place in places for path in place.glob("*.parquet") if not path.name.startswith(".")]
    return sorted(path for path in found if path.name.startswith(half) or path.parent == root / half)


def has_parquet_halves(root: Path) -> bool:
    """Whether there are parquet files of both halves."""
    return bool(parquet_files(root, "train")) and bool(parquet_files(root, "test"))


def read_parquet_halves(root: Path, label_columns: Sequence[str] = ()) -> Dataset:
    """The images in parquet files of both halves."""
    from prol.datasets.parquet import parquet

    return parquet(root, label_column=_first_column(parquet_files(root), label_columns))


def read_parquet_collection(root: Path, label_columns: Sequence[str] = ()) -> Collection:
    """The images in parquet files that nobody has cut."""
    from prol.datasets.parquet import read_parquet

    files = parquet_files(root)
    return read_parquet(files, label_column=_first_column(files, label_columns))


def _first_column(files: Sequence[Path], columns: Sequence[str]) -> str | None:
    """The first of these columns that is there; None leaves the choice to the usual names."""
    from prol.datasets.parquet_labels import opened

    with opened(files[0]) as file:
        here = file.schema_arrow.names
    return next((name for name in columns if name in here), None)


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(str(count) for count in counts)
