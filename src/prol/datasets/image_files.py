"""Images that lie in files, decoded when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Loaded
from prol.datasets.decoding import decode_all

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def is_image(name: str) -> bool:
    """Whether a file's name is that of a visible image.

    >>> is_image("cat.JPG"), is_image("._cat.jpg"), is_image("notes.txt")
    (True, False, False)
    """
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


def images_below(root: Path) -> list[Path]:
    """The images at any depth below a folder, sorted; hidden files and folders are passed over."""
    paths: list[Path] = []
    for here, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(here, name) for name in files if is_image(name)]
    return sorted(paths, key=lambda path: path.relative_to(root).parts)


@dataclass(frozen=True)
class FileSplit:
    """One half of a data set whose images are files; `labels[i]` belongs to `paths[i]`."""

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        return decode_all(indices, lambda index: self.paths[index], lambda index: str(self.paths[index]))
