"""Images named by whoever asks: files, folders to be searched, and patterns such as `photos/*.jpg`."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prol.datasets.image_files import IMAGE_ENDINGS, images_below


@dataclass(frozen=True)
class Given:
    """The image files, each once, in the order they were named; and names that led to none, with the reason."""

    paths: tuple[Path, ...]
    missing: tuple[tuple[str, str], ...]


def find_images(names: Sequence[str]) -> Given:
    """Resolves names. A file is taken whatever its ending is; in a folder only images are, at any depth.

    >>> import os, tempfile
    >>> here = tempfile.mkdtemp()
    >>> for name in ("b.jpg", "a.png", "notes.txt"):
    ...     _ = Path(here, name).write_bytes(b"")
    >>> [path.name for path in find_images([here]).paths]
    ['a.png', 'b.jpg']
    >>> find_images([os.path.join(here, "*.jpg"), "nowhere.jpg"]).missing
    (('nowhere.jpg', 'there is no such file'),)
    """
    paths: dict[Path, None] = {}
    missing: list[tuple[str, str]] = []
    for name in names:
        for place in _places(name):
            if place.is_dir():
                found = images_below(place)
                reason = f"there are no images in this folder (endings: {' '.join(IMAGE_ENDINGS)})"
            else:
                found = [place] if place.is_file() else []
                reason = "this is not a file" if place.exists() else "there is no such file"
            paths |= dict.fromkeys(found)
            if not found:
                missing.append((str(place), reason))
    return Given(tuple(paths), tuple(missing))


def _places(name: str) -> Iterator[Path]:
    """What a pattern matches, in order; a name that exists or matches nothing stands for itself."""
    place = Path(name).expanduser()
    matches = [] if place.exists() else sorted(glob.glob(str(place), recursive=True))
    yield from map(Path, matches) if matches else [place]
