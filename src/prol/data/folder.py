"""Images in files, and a folder of them with one sub-folder per class, split by its owner or by a seed."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Dataset, Loaded, default_tasks, note_on_empty
from prol.data.decoding import decode_all
from prol.data.split import Collection, require_split_options, split_collection

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_LAYOUT = "expected FOLDER/train/CLASS/*.jpg with FOLDER/test/CLASS/*.jpg, or FOLDER/CLASS/*.jpg"

Files = dict[str, list[Path]]
"""Image files by class name, both sorted."""


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


def folder(
    data: str | Path | None = None, seed: int = 0, test_share: float = 0.2, split: str | Path | None = None
) -> Dataset:
    """Images in `train/CLASS/` and `test/CLASS/`, or in `CLASS/` alone; a class is a sub-folder that contains images.

    Images are searched at any depth below the class; hidden files and other files are skipped.

    Args:
        data: the folder.
        seed: draws the test images of each class, if the folder has no `test/`.
        test_share: the fraction of each class to test on, if the folder has no `test/`: at least one image of a class
            that has two or more. 0 uses every image for training.
        split: an index file to use instead of a random split, if the folder has no `test/`.

    >>> import tempfile
    >>> from PIL import Image
    >>> root = Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (root / name).mkdir()
    ...     for i in range(5):
    ...         Image.new("RGB", (9, 7)).save(root / name / f"{i}.png")
    >>> pets = folder(root)
    >>> pets.class_names, len(pets.train.labels), len(pets.test.labels)
    (('cat', 'dog'), 8, 2)
    """
    root = _existing(data)
    require_split_options(test_share, seed)
    if _has_splits(root):
        if split is not None:
            raise ValueError(f"{str(root)!r} has its own test/, so split={str(split)!r} cannot be used: leave it out")
        return read_train_and_test(root)
    return split_collection("folder", read_folder(root), test_share=test_share, seed=seed, stratified=True, split=split)


def read_folder(root: Path) -> Collection:
    """The images of `root/CLASS/` by class and then by path; an image's name is its path below `root`."""
    return collection_of(root, *_classes(root))


def collection_of(root: Path, classes: Files, notes: tuple[str, ...]) -> Collection:
    """The images of these classes, named by their paths below `root`."""
    names = tuple(classes)
    images = _file_split(classes, names)
    return Collection(names, images, [path.relative_to(root).as_posix() for path in images.paths], notes)


def training_images(root: Path) -> Collection:
    """The images of `root/train/CLASS/` if there is a `test/`, too, otherwise those of `root/CLASS/`."""
    return read_folder(root / "train" if _has_splits(_existing(root)) else root)


def read_train_and_test(root: Path) -> Dataset:
    """The images of `root/train/CLASS` and `root/test/CLASS`."""
    (train, notes), (test, _) = _classes(root / "train"), _classes(root / "test")
    unknown = sorted(set(test) - set(train))
    if unknown:
        raise ValueError(
            f"classes with test images but no train images in {str(root)!r}: {', '.join(unknown)}; "
            f"add train images or take them out of test/ (train has: {', '.join(train)})"
        )
    names = tuple(train)
    splits = _file_split(train, names), _file_split(test, names)
    return Dataset("folder", names, *splits, default_tasks(len(names)), notes=notes)


def _existing(data: str | Path | None) -> Path:
    if data is None:
        raise ValueError(f"data set 'folder' needs to know where it is, --data FOLDER or folder(FOLDER): {_LAYOUT}")
    root = Path(data).expanduser()
    if not root.exists():
        raise FileNotFoundError(f"no folder {str(root)!r}: {_LAYOUT}")
    if not root.is_dir():
        raise ValueError(f"{str(root)!r} is a file, not a folder: {_LAYOUT}")
    return root


def _has_splits(root: Path) -> bool:
    # A class may itself be called "train" or "test": a split contains folders, such a class contains images.
    splits = [name for name in ("train", "test") if (root / name).is_dir() and _visible_folders(root / name)]
    if len(splits) == 1:
        missing = "test" if splits == ["train"] else "train"
        raise ValueError(
            f"{str(root)!r} has {splits[0]}/CLASS folders but no {missing}/CLASS folders: add them, "
            f"or pass {str(root / splits[0])!r} alone to have it split by a seed"
        )
    return len(splits) == 2


def _classes(root: Path) -> tuple[Files, tuple[str, ...]]:
    """The classes with their files, and a note on folders without any."""
    found = {path.name: images_below(path) for path in _visible_folders(root)}
    classes = {name: paths for name, paths in found.items() if paths}
    if not classes:
        seen = f"folders without images: {', '.join(found)}" if found else "no folders"
        raise ValueError(f"no classes in {str(root)!r} ({seen}): {_LAYOUT}; endings: {' '.join(IMAGE_ENDINGS)}")
    for name in classes:
        if any("\ud800" <= character <= "\udfff" for character in name):  # a surrogate: undecodable bytes
            raise ValueError(f"the class folder {name!r} has a name that cannot be written as text: rename it")
    return classes, note_on_empty(
        [name for name in found if name not in classes], one="folder", many="folders", where=f" in {str(root)!r}"
    )


def _visible_folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _file_split(classes: Files, names: tuple[str, ...]) -> FileSplit:
    counts = [len(classes.get(name, ())) for name in names]
    paths = tuple(path for name in names for path in classes.get(name, ()))
    return FileSplit(paths, np.repeat(np.arange(len(names), dtype=np.int64), counts))
