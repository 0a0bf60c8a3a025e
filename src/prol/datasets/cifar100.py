"""CIFAR-100: sixty thousand colour images of 32 x 32 pixels in a hundred classes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import ArraySplit, Dataset
from prol.datasets.copies import IMAGE_FOLDERS, Published, finished, parquet_halves, refuse_split
from prol.datasets.finding import Layout, Source, open_copy

SOURCE = Source(
    name="cifar100",
    folder="cifar-100-python",
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz#md5=eb9058c3a382ffc7106e4002c42a8d85",
)
PUBLISHED = Published(classes=100, images=60_000, train_per_task=(5_000,) * 10, test_per_task=(1_000,) * 10)
LICENCE = (
    "No licence is stated; cite A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, "
    "https://www.cs.toronto.edu/~kriz/cifar.html"
)
_FILES = ("train", "test", "meta")
_SIDE = 32
_REBUILD: Any = np.zeros(0).__reduce__()[0]  # numpy's own function, whose module is called otherwise in each version


def cifar100(
    data: str | Path | None = None, seed: int = 0, address: str | None = None, split: str | None = None
) -> Dataset:
    """A hundred kinds of things and animals as 32 x 32 images: 50,000 to learn from, 10,000 to test on.

    Parameters
    ----------
    data
        The folder `cifar-100-python`, image folders `train/CLASS` and `test/CLASS`, or parquet files `train*` and
        `test*`; or the folder around one of them; or the official archive. None looks in `$PROL_DATA` and in the cache
        folder, then downloads.
    seed
        Has no effect: the halves are the published ones.
    address
        Download from here instead of the official place; the checksum is the official one unless it ends in
        `#md5=...`.
    split
        Must be None: the halves are the published ones.

    References
    ----------
    A. Krizhevsky (2009). Learning multiple layers of features from tiny images. Technical report, Toronto.
    """
    del seed
    refuse_split(SOURCE.name, split)
    layouts = (
        Layout("the folder cifar-100-python with the files train, test and meta", _is_official, _read_official),
        IMAGE_FOLDERS,
        parquet_halves(("fine_label",)),
    )
    return finished(open_copy(SOURCE, layouts, data, address), SOURCE.name, LICENCE, PUBLISHED)


def _is_official(root: Path) -> bool:
    return all((root / name).is_file() for name in _FILES)


def _read_official(root: Path) -> Dataset:
    names = _entry(root / "meta", _unpickle(root / "meta"), b"fine_label_names", list)
    if not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(f"{root / 'meta'} is no file of CIFAR-100: its fine_label_names are not all texts")
    class_names = tuple(name.decode() if isinstance(name, bytes) else name for name in names)
    train, test = (_read_half(root / half, len(class_names)) for half in ("train", "test"))
    return Dataset(SOURCE.name, class_names, train, test)


def _read_half(path: Path, classes: int) -> ArraySplit:
    content = _unpickle(path)
    pixels: NDArray[np.uint8] = _entry(path, content, b"data", np.ndarray)
    labels = np.array(_entry(path, content, b"fine_labels", list))
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3 * _SIDE * _SIDE):
        raise ValueError(
            f"{path} is no file of CIFAR-100: its data are {pixels.dtype} {pixels.shape} with {len(labels)} labels, "
            f"not uint8 of as many rows with {3 * _SIDE * _SIDE} columns"
        )
    if labels.dtype.kind != "i" or labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise ValueError(
            f"{path} is no file of CIFAR-100: its fine_labels are not whole numbers from 0 to {classes - 1}"
        )
    # Each row holds all reds, then all greens, then all blues.
    images = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return ArraySplit(np.ascontiguousarray(images), labels.astype(np.int64))


def _entry(path: Path, content: Any, key: bytes, kind: type[Any]) -> Any:
    """One entry of a file's dictionary; Python 2 wrote the keys as bytes, later tools as text."""
    entries = content if isinstance(content, dict) else {}
    found = entries.get(key, entries.get(key.decode()))
    if not isinstance(found, kind):
        raise ValueError(f"{path} is no file of CIFAR-100: it has no {kind.__name__} called {key.decode()!r}")
    return found


class _ArraysOnly(pickle.Unpickler):
    """Reads dictionaries, lists, texts, numbers and numpy arrays: a pickle could otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): _REBUILD,
            ("numpy._core.multiarray", "_reconstruct"): _REBUILD,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return allowed[module, name]


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:
        # A damaged pickle makes Python raise almost anything.
        raise ValueError(f"{path} is damaged or no file of CIFAR-100 ({error or type(error).__name__})") from error
