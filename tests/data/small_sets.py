"""Small data sets in the layouts of the published ones, and a machine that holds none."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image


def bare_machine(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """No data anywhere but in `cache/prol/datasets`, and a network that reaches this machine alone."""
    for name in ("PROL_DATA", "PROL_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def packed(folder: Path, archive: Path) -> Path:
    """The folder as an archive that holds it under its own name; gzipped if the name says so."""
    with tarfile.open(archive, "w" if archive.suffix == ".tar" else "w:gz") as file:
        file.add(folder, arcname=folder.name)
    return archive


def picture(shade: int) -> Image.Image:
    return Image.new("RGB", (12, 10), (shade % 256, 0, 255 - shade % 256))


def fill_classes(root: Path, counts: Mapping[str, int], first: int = 0) -> Path:
    """`root/CLASS/art_0.jpg` and so on; every picture has its own shade."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(first, first + count):
            picture(17 * number).save(root / name / f"art_{number}.jpg")
    return root


class Python2Pickler(pickle._Pickler):
    """Writes texts as Python 2 wrote them, which is how CIFAR-100's files hold names, pixels and numpy's own words."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)
    write: Any
    memoize: Any

    def _save_text(self, text: bytes | str) -> None:
        plain = text.encode("latin-1") if isinstance(text, str) else text
        self.write(b"T" + struct.pack("<i", len(plain)) + plain)
        self.memoize(text)

    dispatch[bytes] = dispatch[str] = _save_text


def write_pickle(path: Path, content: Any) -> None:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(content)
    path.write_bytes(file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def write_cifar(root: Path, names: Sequence[str], train: Sequence[int], test: Sequence[int]) -> NDArray[np.uint8]:
    """`cifar-100-python` with these fine labels; the pixels of its train images are returned, `[N, 32, 32, 3]`."""
    root.mkdir(parents=True)
    random = np.random.default_rng(0)
    write_pickle(
        root / "meta", {b"fine_label_names": [name.encode() for name in names], b"coarse_label_names": [b"things"]}
    )
    pixels = {}
    for half, labels in (("train", train), ("test", test)):
        pixels[half] = random.integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
        content = {
            b"filenames": [b"%d.png" % i for i in range(len(labels))],
            b"batch_label": half.encode(),
            b"fine_labels": list(labels),
            b"coarse_labels": [0] * len(labels),
            b"data": pixels[half].reshape(len(labels), -1),
        }
        write_pickle(root / half, content)
    return pixels["train"].transpose(0, 2, 3, 1)


def write_cub(root: Path, counts: Mapping[str, tuple[int, int]]) -> Path:
    """`CUB_200_2011` with so many train and test images of each class."""
    images: list[str] = []
    labels, splits = [], []
    for number, (name, (train, test)) in enumerate(counts.items(), start=1):
        fill_classes(root / "images", {name: train + test})
        for i in range(train + test):
            image = len(images) + 1
            images.append(f"{image} {name}/art_{i}.jpg")
            labels.append(f"{image} {number}")
            splits.append(f"{image} {int(i < train)}")
    classes = [f"{number} {name}" for number, name in enumerate(counts, start=1)]
    lists = {"images": images, "image_class_labels": labels, "train_test_split": splits, "classes": classes}
    for name, lines in lists.items():
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root


def write_parquet(
    path: Path, labels: Mapping[str, Sequence[int] | Sequence[str]], names: Mapping[str, Sequence[str]], image: str
) -> Path:
    """Images with these label columns as the `datasets` library writes them; `names` are those of number labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = len(next(iter(labels.values())))
    encoded = []
    for number in range(rows):
        file = io.BytesIO()
        picture(11 * number).save(file, "PNG")
        encoded.append({"bytes": file.getvalue(), "path": f"{number}.png"})
    features: dict[str, Any] = {image: {"_type": "Image"}}
    for column in labels:
        named = {"names": list(names[column]), "_type": "ClassLabel"} if column in names else None
        features[column] = named or {"dtype": "string", "_type": "Value"}
    table = pa.table({image: encoded} | {column: list(values) for column, values in labels.items()})
    meta = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(meta), path)
    return path
