"""CIFAR-100: sixty thousand colour images of 32 x 32 pixels in a hundred classes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.data.base import ArraySplit, Dataset
from prol.data.published import IMAGE_FOLDERS, Layout, Published, open_published, parquet_train_and_test

CIFAR100 = Published(
    name="cifar100",
    folder="cifar-100-python",
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz#md5=eb9058c3a382ffc7106e4002c42a8d85",
    licence=(
        "No licence is stated; cite A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, "
        "https://www.cs.toronto.edu/~kriz/cifar.html"
    ),
    classes=100,
    images=60_000,
    train_per_task=(5_000,) * 10,
    test_per_task=(1_000,) * 10,
)
_FILES = ("train", "test", "meta")
_SIDE = 32
_RECONSTRUCT: Any = np.zeros(0).__reduce__()[0]  # its module has another name in each version of numpy
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


def cifar100(data: str | Path | None = None, seed: int = 0, address: str | None = None) -> Dataset:
    """A hundred classes of objects and animals as 32 x 32 images: 50,000 train and 10,000 test images.

    Args:
        data: the folder `cifar-100-python`, image folders `train/CLASS` and `test/CLASS`, or parquet files `train*` and
            `test*`; or the folder around one of them; or the official archive. None searches `$PROL_DATA` and the cache
            folder, then downloads.
        seed: has no effect: the splits are the published ones.
        address: download from here instead of the official address. The official checksum applies unless it ends in its
            own `#md5=...`.

    References:
        A. Krizhevsky (2009). Learning multiple layers of features from tiny images. Technical report, Toronto.
    """
    del seed
    layouts = (
        Layout("the folder cifar-100-python with the files train, test and meta", _is_official, _read_official),
        IMAGE_FOLDERS,
        parquet_train_and_test(("fine_label",)),
    )
    return open_published(CIFAR100, layouts, data, address)


def _is_official(root: Path) -> bool:
    return all((root / name).is_file() for name in _FILES)


def _read_official(root: Path) -> Dataset:
    names = _entry(root / "meta", _unpickle(root / "meta"), b"fine_label_names", list)
    if not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(f"{root / 'meta'} is not a file of CIFAR-100: its fine_label_names are not all strings")
    class_names = tuple(name.decode() if isinstance(name, bytes) else name for name in names)
    train, test = (_read_split(root / name, len(class_names)) for name in ("train", "test"))
    return Dataset(CIFAR100.name, class_names, train, test)


def _read_split(path: Path, classes: int) -> ArraySplit:
    content = _unpickle(path)
    pixels: NDArray[np.uint8] = _entry(path, content, b"data", np.ndarray)
    labels = np.array(_entry(path, content, b"fine_labels", list))
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), 3 * _SIDE * _SIDE):
        raise ValueError(
            f"{path} is not a file of CIFAR-100: its data are {pixels.dtype} {pixels.shape} with {len(labels)} labels, "
            f"not uint8 of as many rows with {3 * _SIDE * _SIDE} columns"
        )
    if labels.dtype.kind != "i" or labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise ValueError(
            f"{path} is not a file of CIFAR-100: its fine_labels are not whole numbers from 0 to {classes - 1}"
        )
    # Each row has all reds, then all greens, then all blues.
    images = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return ArraySplit(np.ascontiguousarray(images), labels.astype(np.int64))


def _entry(path: Path, content: Any, key: bytes, kind: type[Any]) -> Any:
    """One entry of a file's dictionary; Python 2 wrote the keys as bytes, later tools as strings."""
    entries = content if isinstance(content, dict) else {}
    found = entries.get(key, entries.get(key.decode()))
    if not isinstance(found, kind):
        raise ValueError(f"{path} is not a file of CIFAR-100: it has no {kind.__name__} called {key.decode()!r}")
    return found


class _ArraysOnly(pickle.Unpickler):
    """Reads dictionaries, lists, strings, numbers and numpy arrays: a pickle could otherwise run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[module, name]


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:
        # A damaged pickle makes Python raise almost anything.
        raise ValueError(f"{path} is damaged or not a file of CIFAR-100 ({error or type(error).__name__})") from error
