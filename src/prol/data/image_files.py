"""Images in files: which files are images, and splits whose images are decoded when they are loaded."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Loaded
from prol.data.decoding import decode_all

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def is_image(name: str) -> bool:
    """Whether a file name is that of a visible image.

    >>> is_image("cat.JPG"), is_image("._cat.jpg"), is_image("notes.txt")
    (True, False, False)
    """
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def images_below(root: Path) -> list[Path]:
    """The images at any depth below a folder, sorted; hidden files and folders are skipped."""
    paths: list[Path] = []
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(here, name) for name in files if is_image(name)]
    return sorted(paths, key=lambda path: path.relative_to(root).parts)


@dataclass(frozen=True)
class FileSplit:
    """A split whose images are files; `labels[i]` belongs to `paths[i]`."""

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        return decode_all(indices, lambda index: self.paths[index], lambda index: str(self.paths[index]))


@dataclass(frozen=True)
class ImagePaths:
    """The image files, each once, in the given order; and the names without any file, with the reason."""

    paths: tuple[Path, ...]
    missing: tuple[tuple[str, str], ...]


def find_images(names: Sequence[str]) -> ImagePaths:
    """Resolves files, folders and patterns such as `photos/*.jpg`.

    A file is taken whatever its ending; folders are searched for images at any depth.

    >>> import tempfile
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
        given = Path(name).expanduser()
        matches = [] if given.exists() else sorted(glob.glob(str(given), recursive=True))
        for place in map(Path, matches) if matches else [given]:
            if place.is_dir():
                found = images_below(place)
                reason = f"there are no images in this folder (endings: {' '.join(IMAGE_ENDINGS)})"
            else:
                found = [place] if place.is_file() else []
                reason = "this is not a file" if place.exists() else "there is no such file"
            paths |= dict.fromkeys(found)
            if not found:
                missing.append((str(place), reason))
    return ImagePaths(tuple(paths), tuple(missing))
