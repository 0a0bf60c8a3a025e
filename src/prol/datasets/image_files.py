"""Images that lie in files, decoded when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from prol.datasets.base import Loaded, Unreadable
from prol.pictures import rgb_array

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def is_image(name: str) -> bool:
    """Whether a file's name is that of a visible image.

    >>> is_image("cat.JPG"), is_image("._cat.jpg"), is_image("notes.txt")
    (True, False, False)
    """
    return name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")


@dataclass(frozen=True)
class FileSplit:
    """One half of a data set whose images are files; `labels[i]` belongs to `paths[i]`."""

    paths: tuple[Path, ...]
    labels: NDArray[np.int64]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        images: list[NDArray[np.uint8]] = []
        read: list[int] = []
        unreadable: list[Unreadable] = []
        for index in np.asarray(indices, dtype=np.int64).tolist():
            path = self.paths[index]
            try:
                images.append(decode(path))
            except Exception as error:
                # Damaged files make decoders raise almost anything; one bad image must not end a run.
                unreadable.append(Unreadable(index, str(path), _reason(path, error)))
            else:
                read.append(index)
        return Loaded(images, np.array(read, dtype=np.int64), unreadable)


def decode(path: Path) -> NDArray[np.uint8]:
    """An image file as uint8 RGB `[H, W, 3]`, upright, whatever its mode; what is transparent becomes white."""
    with Image.open(path) as file:
        file.load()
        return rgb_array(file)


def _reason(path: Path, error: Exception) -> str:
    if not path.exists():
        return "the file is gone"
    if path.stat().st_size == 0:
        return "the file is empty"
    said = " ".join(str(error).replace(repr(str(path)), "").split())
    return f"{said or 'cannot be decoded'} ({type(error).__name__})"
