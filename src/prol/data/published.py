"""Published data sets: finds a copy on this machine or downloads one, and compares it with the publication."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NoReturn
from urllib.parse import urldefrag, urlsplit

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Dataset, listed
from prol.data.download import DownloadError, cache_root, extract, fetch, is_archive, locked, offline_setting
from prol.data.folder import read_train_and_test
from prol.data.split import Collection

_TASKS = 10


@dataclass(frozen=True)
class Published:
    """A published data set: where it is, and what its complete copy contains.

    `folder` is the folder in the archive, and `address` that of the archive, ending in `#md5=...`. The numbers per task
    are of the first tasks of ten, if known.
    """

    name: str
    folder: str
    address: str
    licence: str
    classes: int
    images: int
    train_per_task: tuple[int, ...] = ()
    test_per_task: tuple[int, ...] = ()
    images_per_task: tuple[int, ...] = ()

    @property
    def archive(self) -> str:
        """The archive's file name."""
        return PurePosixPath(urlsplit(self.address).path).name

    @property
    def cache(self) -> Path:
        """The folder of downloads and unpacked archives."""
        return cache_root() / "datasets" / self.name


@dataclass(frozen=True)
class Layout:
    """One form of a copy on disk: a description, a test for it, and a reader."""

    description: str
    fits: Callable[[Path], bool]
    read: Callable[[Path], Dataset]


def open_published(
    published: Published, layouts: Sequence[Layout], data: str | Path | None = None, address: str | None = None
) -> Dataset:
    """Reads the first copy found: in `data` if given, else in `$PROL_DATA`, in the cache folder, from the network.

    The notes of the data set say how the copy differs from the publication.

    Args:
        published: the data set.
        layouts: the possible forms of a copy; earlier ones are preferred.
        data: the copy's folder, the folder around it, or the official archive. Nothing else is searched.
        address: download from here instead. The official checksum applies unless it ends in its own `#md5=...`.
    """
    copy = _open_copy(published, layouts, data, address)
    notes = (*copy.notes, *differences(copy, published))
    return replace(copy, name=published.name, tasks=_TASKS, licence=published.licence, notes=notes)


def differences(copy: Dataset, published: Published) -> tuple[str, ...]:
    """Sentences on missing or additional images of a copy; none if it is as published."""
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
                f"this copy is not the published data set: its first tasks have {', '.join(map(str, found))} {what} "
                f"in place of {', '.join(map(str, wanted))}"
            )
    return tuple(notes)


def images_per_task(labels: NDArray[np.int64], tasks: int = _TASKS) -> list[int]:
    """The number of images of each task if the classes are split into tasks by number.

    >>> images_per_task(np.array([0, 0, 1, 2, 2, 2, 3]), tasks=2)
    [3, 4]
    """
    counts = np.unique(labels, return_counts=True)[1]
    return [int(of_task.sum()) for of_task in np.array_split(counts, tasks)]


def has_image_folders(root: Path) -> bool:
    """Whether `train/` and `test/` both contain folders."""
    return all(
        (root / name).is_dir() and any(path.is_dir() for path in (root / name).iterdir()) for name in ("train", "test")
    )


IMAGE_FOLDERS = Layout("image folders train/CLASS and test/CLASS", has_image_folders, read_train_and_test)


def parquet_train_and_test(label_columns: Sequence[str] = ()) -> Layout:
    """Parquet files of both splits; `label_columns` are tried before the usual ones."""

    def read(root: Path) -> Dataset:
        from prol.data.parquet import parquet

        return parquet(root, label_column=_first_column(parquet_files(root), label_columns))

    return Layout(
        "parquet files train*.parquet and test*.parquet",
        lambda root: all(parquet_files(root, name) for name in ("train", "test")),
        read,
    )


def parquet_files(root: Path, split: str = "") -> list[Path]:
    """The parquet files named after a split, in a folder or in its folders `train/` and `test/`.

    Not at any depth, because the folder around a data set may contain others.
    """
    places = [root, root / "train", root / "test"]
    found = [path for place in places for path in place.glob("*.parquet") if not path.name.startswith(".")]
    return sorted(path for path in found if path.name.startswith(split) or path.parent == root / split)


def read_parquet_collection(root: Path, label_columns: Sequence[str] = ()) -> Collection:
    """The images in parquet files that are not split."""
    from prol.data.parquet import read_parquet

    files = parquet_files(root)
    return read_parquet(files, label_column=_first_column(files, label_columns), root=root)


def _first_column(files: Sequence[Path], columns: Sequence[str]) -> str | None:
    """The first of these columns that exists; None leaves the choice to the usual names."""
    from prol.data.parquet_files import opened

    with opened(files[0]) as file:
        here = file.schema_arrow.names
    return next((name for name in columns if name in here), None)


def _open_copy(
    published: Published, layouts: Sequence[Layout], data: str | Path | None, address: str | None
) -> Dataset:
    if data is not None:
        place = Path(data).expanduser()
        return _look(published, layouts, place) or _refuse(published, layouts, place)
    # PROL_DATA itself is not searched: its train/ and test/ could be those of any data set.
    base, cache = os.environ.get("PROL_DATA"), published.cache
    names = (published.name, published.folder, published.archive)
    named = [Path(base).expanduser() / name for name in names] if base else []
    for place in (*named, cache, cache / "unpacked"):
        found = _look(published, layouts, place)
        if found is not None:
            return found
    for place in named:
        if place.exists():
            _refuse(published, layouts, place)
    _download(published, address or published.address)
    return _look(published, layouts, cache / "unpacked") or _refuse(published, layouts, cache / "unpacked")


def _look(published: Published, layouts: Sequence[Layout], place: Path) -> Dataset | None:
    """Reads the copy in a folder, in the usual folders one level below, or in the archive there."""
    roots = [place, place / published.folder, place / published.name, place / "data"]
    for layout in layouts:
        for root in roots:
            if root.is_dir() and layout.fits(root):
                return replace(layout.read(root), found_at=str(root.resolve()))
    for archive in (place, place / published.archive):
        if archive.is_file() and is_archive(archive):
            unpacked = _unpack(published, archive)
            return _look(published, layouts, unpacked) or _refuse(published, layouts, unpacked)
    return None


def _unpack(published: Published, archive: Path) -> Path:
    """The folder with an archive's content, unpacked into the cache unless it already was."""
    state = archive.stat()
    mark = hashlib.sha256(f"{archive.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
    target = published.cache / f"unpacked-{mark}"
    if not target.is_dir():
        with locked(published.cache):
            if not target.is_dir():
                extract(archive, target)
    return target


def _download(published: Published, address: str) -> None:
    """Downloads the archive and unpacks it into the cache, in one process; others wait for it."""
    setting = offline_setting()
    if setting:
        raise ValueError(_advice(published, f"{setting} forbids downloading it"))
    cache = published.cache
    plain, fragment = urldefrag(address)
    md5 = (fragment or urldefrag(published.address).fragment).removeprefix("md5=")
    # In a folder that is not searched: another process must not read an archive that is about to be unpacked.
    archive = cache / "download" / published.archive
    with locked(cache):
        if (cache / "unpacked").is_dir():
            return
        archive.parent.mkdir(exist_ok=True)
        try:
            if not archive.exists():
                fetch(plain, archive, md5)
        except DownloadError as error:
            raise ValueError(_advice(published, f"downloading it failed: {error}")) from error
        extract(archive, cache / "unpacked")
        shutil.rmtree(archive.parent)


def _advice(published: Published, problem: str) -> str:
    base = os.environ.get("PROL_DATA")
    return (
        f"data set {published.name!r} is not on this machine and {problem}. Get {urldefrag(published.address).url} and "
        f"put the file, or its folder {published.folder}, anywhere and pass that place with --data, or into the folder "
        f"that PROL_DATA names ({f'now {base}' if base else 'now not set'}), or into {published.cache}"
    )


def _refuse(published: Published, layouts: Sequence[Layout], place: Path) -> NoReturn:
    expected = "; or ".join([*(layout.description for layout in layouts), f"the file {published.archive}"])
    if not place.exists():
        raise FileNotFoundError(f"no folder {str(place)!r} to read {published.name!r} from: expected {expected}")
    if place.is_file():
        raise ValueError(f"{str(place)!r} is a file but not a tar archive of {published.name!r}: expected {expected}")
    found = sorted(f"{path.name}/" if path.is_dir() else path.name for path in place.iterdir())
    raise ValueError(
        f"no copy of {published.name!r} in {str(place)!r}: expected {expected}; found {listed(found) or 'nothing'}"
    )
