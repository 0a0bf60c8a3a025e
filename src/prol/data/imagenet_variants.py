"""ImageNet-R and ImageNet-A: two hundred ImageNet classes in folders named by WordNet IDs, without published splits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from prol.data.base import Dataset, note_on_empty
from prol.data.folder import collection_of, is_image
from prol.data.published import (
    IMAGE_FOLDERS,
    Layout,
    Published,
    open_published,
    parquet_files,
    parquet_train_and_test,
    read_parquet_collection,
)
from prol.data.split import Collection, split_collection

IMAGENET_R = Published(
    name="imagenet_r",
    folder="imagenet-r",
    address="https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar#md5=a61312130a589d0ca1a8fca1f2bd3337",
    licence=(
        "The authors' repository is under the MIT licence; the images belong to their owners. D. Hendrycks et al. "
        "(2021), https://github.com/hendrycks/imagenet-r"
    ),
    classes=200,
    images=30_000,
    images_per_task=(3231, 3606, 2175, 2933, 3519, 2770, 2842, 2277, 3110, 3537),
)
IMAGENET_A = Published(
    name="imagenet_a",
    folder="imagenet-a",
    address="https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar#md5=c3e55429088dc681f30d81f4726b6595",
    licence=(
        "The authors' repository is under the MIT licence; the images belong to their owners. D. Hendrycks et al. "
        "(2021), https://github.com/hendrycks/natural-adv-examples"
    ),
    classes=200,
    images=7_500,
)
_CLASS = re.compile(r"n\d{8}")
_LABELS = ("wnid",)


def imagenet_r(
    data: str | Path | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    address: str | None = None,
    split: str | None = None,
) -> Dataset:
    """Art, cartoons, toys and other renditions of two hundred ImageNet classes: 30,000 images, a fifth to test on.

    There are no published splits. The paper draws the test images from all images together, once for all runs.

    Args:
        data: the folder `imagenet-r`, with class folders as published or already split into `train/` and `test/`, or
            parquet files; or the folder around one of them; or the official archive. None searches `$PROL_DATA` and the
            cache folder, then downloads.
        seed: draws the test images.
        test_share: the fraction of all images to test on.
        address: download from here instead of the official address. The official checksum applies unless it ends in its
            own `#md5=...`.
        split: an index file of an earlier run (`split.json`) to use instead of a random split.

    References:
        D. Hendrycks et al. (2021). The many faces of robustness: a critical analysis of out-of-distribution
        generalization. ICCV.
    """
    return _open(IMAGENET_R, data, seed, test_share, address, split)


def imagenet_a(
    data: str | Path | None = None,
    seed: int = 0,
    test_share: float = 0.5,
    address: str | None = None,
    split: str | None = None,
) -> Dataset:
    """Photographs of two hundred ImageNet classes that mislead trained networks: 7,500 images, half to test on.

    There are no published splits. The paper draws the test images from all images together, once for all runs; other
    papers test on a fifth (`test_share=0.2`).

    The parameters are those of `imagenet_r`, with the folder `imagenet-a`.

    References:
        D. Hendrycks, K. Zhao, S. Basart, J. Steinhardt, D. Song (2021). Natural adversarial examples. CVPR.
    """
    return _open(IMAGENET_A, data, seed, test_share, address, split)


def _open(
    published: Published, data: str | Path | None, seed: int, test_share: float, address: str | None, split: str | None
) -> Dataset:
    """Opens a copy. One without splits is split over all its images, not class by class, as in papers."""

    def drawn(collection: Collection) -> Dataset:
        return split_collection(
            published.name, collection, test_share=test_share, seed=seed, stratified=False, split=split
        )

    def given(dataset: Dataset, root: Path) -> Dataset:
        if split is not None:
            raise ValueError(f"the copy in {root} has its own train and test, so split={split!r} cannot be used")
        note = f"the copy in {root} is split into train and test already, so seed and test_share have no effect"
        return replace(dataset, split=None, notes=(*dataset.notes, note))

    parquet = parquet_train_and_test(_LABELS)
    layouts = (
        Layout(
            "train/ and test/ with folders named like n01443537, as other projects leave them",
            lambda root: IMAGE_FOLDERS.fits(root) and all(_classes(root / name) for name in ("train", "test")),
            lambda root: given(IMAGE_FOLDERS.read(root), root),
        ),
        Layout(
            f"the folder {published.folder} with folders named like n01443537",
            lambda root: bool(_classes(root)),
            lambda root: drawn(_read_official(root)),
        ),
        replace(parquet, read=lambda root: given(parquet.read(root), root)),
        Layout(
            "parquet files of all images",
            lambda root: bool(parquet_files(root)),
            lambda root: drawn(read_parquet_collection(root, _LABELS)),
        ),
    )
    return open_published(published, layouts, data, address)


def _classes(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if _CLASS.fullmatch(path.name) and path.is_dir())


def _read_official(root: Path) -> Collection:
    found = {path.name: sorted(file for file in path.iterdir() if is_image(file.name)) for path in _classes(root)}
    classes = {name: files for name, files in found.items() if files}
    if not classes:
        raise ValueError(f"the class folders in {root} contain no images: get the data set again")
    return collection_of(root, classes, note_on_empty([name for name in found if name not in classes]))
