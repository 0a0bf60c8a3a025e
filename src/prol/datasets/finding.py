"""Finds a copy of a published data set on this machine, or downloads it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NoReturn
from urllib.parse import urldefrag, urlsplit

from prol.datasets.archives import extract, locked
from prol.datasets.base import Dataset
from prol.datasets.cache import cache_root
from prol.datasets.fetching import FetchError, fetch

_NAMED_AT_MOST = 8


@dataclass(frozen=True)
class Source:
    """What a data set is called here, the folder its archive holds, and the archive's address ending in `#md5=...`."""

    name: str
    folder: str
    address: str

    @property
    def archive(self) -> str:
        """The archive's file name."""
        return PurePosixPath(urlsplit(self.address).path).name


@dataclass(frozen=True)
class Layout:
    """One way a copy may lie on disk: in words, how a folder is recognised as one, and how it is read."""

    words: str
    fits: Callable[[Path], bool]
    read: Callable[[Path], Dataset]


def open_copy(
    source: Source, layouts: Sequence[Layout], data: str | Path | None = None, address: str | None = None
) -> Dataset:
    """Reads the first copy found: in `data` if given, else in `$PROL_DATA`, in the cache folder, from the network.

    Parameters
    ----------
    source
        Which data set.
    layouts
        What a copy may look like; earlier ones are preferred.
    data
        The copy's folder, the folder around it, or the official archive. Nothing else is looked at.
    address
        Download from here instead. The official checksum holds unless it ends in `#md5=...` of its own.
    """
    if data is not None:
        place = Path(data).expanduser()
        return _look(source, layouts, place) or _refuse(source, layouts, place)
    named, cache = _named_places(source), cache_folder(source.name)
    for place in (*named, cache, cache / "unpacked"):
        found = _look(source, layouts, place)
        if found is not None:
            return found
    for place in named:
        if place.exists():
            _refuse(source, layouts, place)
    _download(source, address or source.address)
    return _look(source, layouts, cache / "unpacked") or _refuse(source, layouts, cache / "unpacked")


def cache_folder(name: str) -> Path:
    """Where downloads and unpacked archives of a data set are kept."""
    return cache_root() / "datasets" / name


def forbidden() -> str | None:
    """The setting that keeps us off the network, such as "PROL_OFFLINE=1"; None where there is none."""
    for name in ("PROL_OFFLINE", "HF_HUB_OFFLINE"):
        value = os.environ.get(name, "")
        if value.lower() in ("1", "true", "yes", "on"):
            return f"{name}={value}"
    return None


def _named_places(source: Source) -> list[Path]:
    # PROL_DATA itself is not looked at: train/ and test/ in it could be those of any data set.
    base = os.environ.get("PROL_DATA")
    return [Path(base).expanduser() / name for name in (source.name, source.folder, source.archive)] if base else []


def _look(source: Source, layouts: Sequence[Layout], place: Path) -> Dataset | None:
    """Reads the copy in a folder, in the usual folders one below, or in the archive that lies there."""
    roots = [place, place / source.folder, place / source.name, place / "data"]
    for layout in layouts:
        for root in roots:
            if root.is_dir() and layout.fits(root):
                return replace(layout.read(root), found_at=str(root.resolve()))
    for archive in (place, place / source.archive):
        if archive.is_file() and tarfile.is_tarfile(archive):
            unpacked = _unpack(source, archive)
            return _look(source, layouts, unpacked) or _refuse(source, layouts, unpacked)
    return None


def _unpack(source: Source, archive: Path) -> Path:
    """The folder with an archive's content, unpacked into the cache unless it has been before."""
    cache = cache_folder(source.name)
    state = archive.stat()
    mark = hashlib.sha256(f"{archive.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
    target = cache / f"unpacked-{mark}"
    if not target.is_dir():
        with locked(cache):
            if not target.is_dir():
                extract(archive, target)
    return target


def _download(source: Source, address: str) -> None:
    """Fetches the archive and unpacks it into the cache; one process does, others wait for it."""
    setting = forbidden()
    if setting:
        raise ValueError(_advice(source, f"{setting} forbids downloading it"))
    cache = cache_folder(source.name)
    plain, fragment = urldefrag(address)
    md5 = (fragment or urldefrag(source.address).fragment).removeprefix("md5=")
    # In a folder that is not looked into: another process must not take an archive that is about to be unpacked.
    archive = cache / "download" / source.archive
    with locked(cache):
        if (cache / "unpacked").is_dir():
            return
        archive.parent.mkdir(exist_ok=True)
        try:
            if not archive.exists():
                fetch(plain, archive, md5)
        except FetchError as error:
            raise ValueError(_advice(source, f"downloading it failed: {error}")) from error
        extract(archive, cache / "unpacked")
        shutil.rmtree(archive.parent)


def _advice(source: Source, problem: str) -> str:
    base = os.environ.get("PROL_DATA")
    return (
        f"data set {source.name!r} is not on this machine and {problem}. Get {urldefrag(source.address).url} and put "
        f"the file, or its folder {source.folder}, anywhere and pass that place with --data, or into the folder that "
        f"PROL_DATA names ({f'now {base}' if base else 'now not set'}), or into {cache_folder(source.name)}"
    )


def _refuse(source: Source, layouts: Sequence[Layout], place: Path) -> NoReturn:
    expected = "; or ".join([*(layout.words for layout in layouts), f"the file {source.archive}"])
    if not place.exists():
        raise FileNotFoundError(f"no folder {str(place)!r} to read {source.name!r} from: expected {expected}")
    if place.is_file():
        raise ValueError(f"{str(place)!r} is a file and no tar archive of {source.name!r}: expected {expected}")
    found = sorted(f"{path.name}/" if path.is_dir() else path.name for path in place.iterdir())
    more = f" and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
    named = f"{', '.join(found[:_NAMED_AT_MOST])}{more}" if found else "nothing"
    raise ValueError(f"no copy of {source.name!r} in {str(place)!r}: expected {expected}; found {named}")
