"""CUB-200-2011: photographs of two hundred species of birds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prol.datasets.base import Dataset
from prol.datasets.copies import IMAGE_FOLDERS, Published, finished, parquet_halves, refuse_split
from prol.datasets.finding import Layout, Source, open_copy
from prol.datasets.image_files import FileSplit

SOURCE = Source(
    name="cub200",
    folder="CUB_200_2011",
    address="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz#md5=97eceeb196236b17998738112f37df78",
)
PUBLISHED = Published(classes=200, images=11_788, train_per_task=(600, 600), test_per_task=(515, 575))
LICENCE = (
    "Non-commercial research and education only; the photographs belong to their owners. C. Wah et al. (2011), "
    "The Caltech-UCSD Birds-200-2011 Dataset, https://www.vision.caltech.edu/datasets/cub_200_2011/"
)
_LISTS = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def cub200(
    data: str | Path | None = None, seed: int = 0, address: str | None = None, split: str | None = None
) -> Dataset:
    """Two hundred species of birds, about sixty photographs each: 5,994 to learn from, 5,794 to test on.

    Parameters
    ----------
    data
        The folder `CUB_200_2011`, image folders `train/CLASS` and `test/CLASS`, or parquet files `train*` and `test*`;
        or the folder around one of them; or the official archive. None looks in `$PROL_DATA` and in the cache folder,
        then downloads.
    seed
        Has no effect: the halves are the published ones.
    address
        Download from here instead of the official place; the checksum is the official one unless it ends in
        `#md5=...`.
    split
        Must be None: the halves are the published ones.

    References
    ----------
    C. Wah, S. Branson, P. Welinder, P. Perona, S. Belongie (2011). The Caltech-UCSD Birds-200-2011 dataset. Technical
    report CNS-TR-2011-001, California Institute of Technology.
    """
    del seed
    refuse_split(SOURCE.name, split)
    layouts = (
        Layout(f"the folder CUB_200_2011 with images/ and {', '.join(_LISTS)}", _is_official, _read_official),
        IMAGE_FOLDERS,
        parquet_halves(),
    )
    return finished(open_copy(SOURCE, layouts, data, address), SOURCE.name, LICENCE, PUBLISHED)


def _is_official(root: Path) -> bool:
    return (root / "images").is_dir() and all((root / name).is_file() for name in _LISTS)


def _read_official(root: Path) -> Dataset:
    files, names = _read_list(root / "images.txt"), _read_list(root / "classes.txt")
    species, trained = _read_numbers(root / "image_class_labels.txt"), _read_numbers(root / "train_test_split.txt")
    if not files.keys() == species.keys() == trained.keys():
        raise ValueError(f"{', '.join(_LISTS[:3])} in {root} do not list the same images: get all three again")
    present = sorted(set(species.values()))
    stray = [str(number) for number in present if number not in names]
    if stray:
        raise ValueError(f"{root / 'classes.txt'} does not list the classes {', '.join(stray)}: get it again")
    row = {number: i for i, number in enumerate(present)}
    paths = {image: root / "images" / file for image, file in files.items()}
    missing = sum(not path.is_file() for path in paths.values())
    note = f"{missing:,} of {len(paths):,} images that images.txt lists are not there: a run passes over them"

    def half(wanted: bool) -> FileSplit:
        chosen = [image for image in sorted(paths) if bool(trained[image]) == wanted]
        labels = np.array([row[species[image]] for image in chosen], dtype=np.int64)
        return FileSplit(tuple(paths[image] for image in chosen), labels)

    class_names = tuple(names[number] for number in present)
    return Dataset(SOURCE.name, class_names, half(True), half(False), notes=(note,) if missing else ())


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
        raise ValueError(f"{path} is damaged: {text!r} stands where a whole number must; get it again")
    return int(text)
