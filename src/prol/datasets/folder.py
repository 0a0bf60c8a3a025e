"""A folder of images, one sub-folder a class: cut into train and test by its owner, or here by a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Dataset
from prol.datasets.collection import Collection, without_images
from prol.datasets.cutting import cut_collection, require_drawing
from prol.datasets.image_files import IMAGE_ENDINGS, FileSplit, images_below

_LAYOUT = "expected FOLDER/train/CLASS/*.jpg with FOLDER/test/CLASS/*.jpg, or FOLDER/CLASS/*.jpg"

Files = dict[str, list[Path]]
"""Image files by class name, both sorted."""


def folder(
    data: str | Path | None = None, seed: int = 0, test_share: float = 0.2, split: str | Path | None = None
) -> Dataset:
    """Images in `train/CLASS/` and `test/CLASS/`, or in `CLASS/` alone; a class is a sub-folder that holds images.

    Images are searched at any depth below the class; hidden files and files that are no images are passed over.

    Parameters
    ----------
    data
        The folder.
    seed
        Draws the test images of each class, where the folder has no `test/`.
    test_share
        Which part of each class is tested on, where the folder has no `test/`: at least one image of a class that
        has two or more. 0 keeps every image for training.
    split
        An index file whose cut is taken in place of drawing one, where the folder has no `test/`.

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
    require_drawing(test_share, seed)
    if _has_halves(root):
        if split is not None:
            raise ValueError(
                f"{str(root)!r} has a test/ of its own, so split={str(split)!r} cannot be used: leave it out"
            )
        return _given_halves(root)
    collection = read_folder(root)
    train, test, cut = cut_collection(collection, test_share=test_share, seed=seed, stratified=True, split=split)
    names = collection.class_names
    return Dataset("folder", names, train, test, _tasks(names), cut=cut, notes=collection.notes)


def read_folder(root: Path) -> Collection:
    """The images of `root/CLASS/` by class and then by path; an image's name is its path below `root`."""
    classes, notes = _classes(root)
    names = tuple(classes)
    images = _split(classes, names)
    return Collection(names, images, [path.relative_to(root).as_posix() for path in images.paths], notes)


def _given_halves(root: Path) -> Dataset:
    (train, notes), (test, _) = _classes(root / "train"), _classes(root / "test")
    stray = sorted(set(test) - set(train))
    if stray:
        raise ValueError(
            f"classes with test images but no train images in {str(root)!r}: {', '.join(stray)}; "
            f"add train images or take them out of test/ (train has: {', '.join(train)})"
        )
    names = tuple(train)
    return Dataset("folder", names, _split(train, names), _split(test, names), _tasks(names), notes=notes)


def _existing(data: str | Path | None) -> Path:
    if data is None:
        raise ValueError(f"data set 'folder' needs to know where it is, --data FOLDER or folder(FOLDER): {_LAYOUT}")
    root = Path(data).expanduser()
    if not root.exists():
        raise FileNotFoundError(f"no folder {str(root)!r}: {_LAYOUT}")
    if not root.is_dir():
        raise ValueError(f"{str(root)!r} is a file, not a folder: {_LAYOUT}")
    return root


def _has_halves(root: Path) -> bool:
    # A class may itself be called "train" or "test": halves hold folders, such a class holds images.
    halves = [half for half in ("train", "test") if (root / half).is_dir() and _visible_folders(root / half)]
    if len(halves) == 1:
        missing = "test" if halves == ["train"] else "train"
        raise ValueError(
            f"{str(root)!r} has {halves[0]}/CLASS folders but no {missing}/CLASS folders: add them, "
            f"or pass {str(root / halves[0])!r} alone to have it cut by a seed"
        )
    return len(halves) == 2


def _classes(root: Path) -> tuple[Files, tuple[str, ...]]:
    """The classes with their files, and a note on folders that hold none."""
    found = {path.name: images_below(path) for path in _visible_folders(root)}
    classes = {name: paths for name, paths in found.items() if paths}
    empty = [name for name in found if name not in classes]
    if not classes:
        seen = f"folders without images: {', '.join(found)}" if found else "no folders"
        raise ValueError(f"no classes in {str(root)!r} ({seen}): {_LAYOUT}; endings: {' '.join(IMAGE_ENDINGS)}")
    for name in classes:
        if any("\ud800" <= character <= "\udfff" for character in name):  # bytes that are no text in any encoding known
            raise ValueError(f"the class folder {name!r} has a name that cannot be written as text: rename it")
    return classes, without_images(f"folders in {str(root)!r}", empty)


def _visible_folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _split(classes: Files, names: tuple[str, ...]) -> FileSplit:
    number = {name: i for i, name in enumerate(names)}
    paths = tuple(path for of_class in classes.values() for path in of_class)
    labels: NDArray[np.int64] = np.array(
        [number[name] for name, of_class in classes.items() for _ in of_class], dtype=np.int64
    )
    return FileSplit(paths, labels)


def _tasks(names: tuple[str, ...]) -> int:
    return min(10, max(1, len(names) // 2))
