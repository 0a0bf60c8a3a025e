"""What ImageNet-R and ImageNet-A have in common: folders named by WordNet numbers, and no published halves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from prol.datasets.base import Dataset
from prol.datasets.collection import Collection, without_images
from prol.datasets.copies import (
    Published,
    finished,
    has_image_folders,
    has_parquet_halves,
    parquet_files,
    read_image_folders,
    read_parquet_collection,
    read_parquet_halves,
)
from prol.datasets.cutting import cut_collection
from prol.datasets.finding import Layout, Source, open_copy
from prol.datasets.image_files import FileSplit, is_image

_CLASS = re.compile(r"n\d{8}")
_LABELS = ("wnid",)


def open_variant(
    source: Source,
    published: Published,
    licence: str,
    *,
    data: str | Path | None,
    seed: int,
    test_share: float,
    address: str | None,
    split: str | None,
) -> Dataset:
    """Opens a copy; one that nobody has cut yet is cut over all its images, not class by class, as papers do."""

    def cut(collection: Collection) -> Dataset:
        train, test, how = cut_collection(collection, test_share=test_share, seed=seed, stratified=False, split=split)
        return Dataset(source.name, collection.class_names, train, test, cut=how, notes=collection.notes)

    def given(halves: Dataset, root: Path) -> Dataset:
        if split is not None:
            raise ValueError(
                f"the copy in {root} is cut into train and test already, so split={split!r} cannot be used"
            )
        note = f"the copy in {root} is cut into train and test already, so seed and test_share have no effect"
        return replace(halves, cut=None, notes=(*halves.notes, note))

    layouts = (
        Layout(
            "train/ and test/ with folders named like n01443537, as other projects leave them",
            lambda root: has_image_folders(root) and all(_classes(root / half) for half in ("train", "test")),
            lambda root: given(read_image_folders(root), root),
        ),
        Layout(
            f"the folder {source.folder} with folders named like n01443537",
            lambda root: bool(_classes(root)),
            lambda root: cut(_read_official(root)),
        ),
        Layout(
            "parquet files train*.parquet and test*.parquet",
            has_parquet_halves,
            lambda root: given(read_parquet_halves(root, _LABELS), root),
        ),
        Layout(
            "parquet files of all images",
            lambda root: bool(parquet_files(root)),
            lambda root: cut(read_parquet_collection(root, _LABELS)),
        ),
    )
    return finished(open_copy(source, layouts, data, address), source.name, licence, published)


def _classes(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if _CLASS.fullmatch(path.name) and path.is_dir())


def _read_official(root: Path) -> Collection:
    found = {path.name: sorted(file.name for file in path.iterdir() if is_image(file.name)) for path in _classes(root)}
    names = tuple(name for name, files in found.items() if files)
    if not names:
        raise ValueError(f"the class folders in {root} hold no images: get the data set again")
    image_names = [f"{name}/{file}" for name in names for file in found[name]]
    labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(found[name]) for name in names])
    notes = without_images("classes", [name for name, files in found.items() if not files])
    return Collection(names, FileSplit(tuple(root / name for name in image_names), labels), image_names, notes)
