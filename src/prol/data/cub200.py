"""CUB-200-2011: photographs of two hundred species of birds."""

from __future__ import annotations

from pathlib import Path, PurePath

import numpy as np

from prol.data.base import Dataset
from prol.data.folder import FileSplit
from prol.data.published import IMAGE_FOLDERS, Layout, Published, open_published, parquet_train_and_test

CUB200 = Published(
    name="cub200",
    folder="CUB_200_2011",
    address="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz#md5=97eceeb196236b17998738112f37df78",
    licence=(
        "Non-commercial research and education only; the photographs belong to their owners. C. Wah et al. (2011), "
        "The Caltech-UCSD Birds-200-2011 Dataset, https://www.vision.caltech.edu/datasets/cub_200_2011/"
    ),
    classes=200,
    images=11_788,
    train_per_task=(600, 600),
    test_per_task=(515, 575),
)
_LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def cub200(data: str | Path | None = None, seed: int = 0, address: str | None = None) -> Dataset:
    """Two hundred species of birds, about sixty photographs each: 5,994 train and 5,794 test images.

    `data`, `seed` and `address` are those of `cifar100`, with the folder `CUB_200_2011`.

    References:
        C. Wah, S. Branson, P. Welinder, P. Perona, S. Belongie (2011). The Caltech-UCSD Birds-200-2011 dataset.
        Technical report CNS-TR-2011-001, California Institute of Technology.
    """
    del seed
    layouts = (
        Layout(f"the folder CUB_200_2011 with images/ and {', '.join(_LISTS)}", _is_official, _read_official),
        IMAGE_FOLDERS,
        parquet_train_and_test(),
    )
    return open_published(CUB200, layouts, data, address)


def _is_official(root: Path) -> bool:
    return (root / "images").is_dir() and all((root / name).is_file() for name in _LISTS)


def _read_official(root: Path) -> Dataset:
    files, names = _read_list(root / "images.txt"), _read_list(root / "classes.txt")
    species, trained = _read_numbers(root / "image_class_labels.txt"), _read_numbers(root / "train_test_split.txt")
    if not files.keys() == species.keys() == trained.keys():
        raise ValueError(f"{', '.join(_LISTS[:3])} in {root} do not list the same images: get all three again")
    present = sorted(set(species.values()))
    unknown = [str(number) for number in present if number not in names]
    if unknown:
        raise ValueError(f"{root / 'classes.txt'} does not list the classes {', '.join(unknown)}: get it again")
    row = {number: i for i, number in enumerate(present)}
    for file in files.values():
        if PurePath(file).is_absolute() or ".." in PurePath(file).parts:
            raise ValueError(f"{root / 'images.txt'} is damaged: {file!r} is outside of images/; get it again")
    paths = {image: root / "images" / file for image, file in files.items()}
    missing = sum(not path.is_file() for path in paths.values())
    note = f"{missing:,} of {len(paths):,} images that images.txt lists are not there: a run passes over them"

    def split(wanted: bool) -> FileSplit:
        chosen = [image for image in sorted(paths) if bool(trained[image]) == wanted]
        labels = np.array([row[species[image]] for image in chosen], dtype=np.int64)
        return FileSplit(tuple(paths[image] for image in chosen), labels)

    class_names = tuple(names[number] for number in present)
    return Dataset(CUB200.name, class_names, split(True), split(False), notes=(note,) if missing else ())


def _read_numbers(path: Path) -> dict[int, int]:
    return {image: _number(path, value) for image, value in _read_list(path).items()}


def _read_list(path: Path) -> dict[int, str]:
    """The lines "NUMBER VALUE" of one of the official lists."""
    listed: dict[int, str] = {}
    for line in filter(None, map(str.strip, path.read_text(encoding="utf-8", errors="replace").splitlines())):
        number, _, value = line.partition(" ")
        if not value:
            raise ValueError(f"{path} is damaged: {line!r} is not a number and a value; get it again")
        listed[_number(path, number)] = value
    return listed


def _number(path: Path, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{path} is damaged: {text!r} is not a whole number; get it again")
    return int(text)
