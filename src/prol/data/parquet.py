"""Parquet files as on the Hugging Face hub, split into train and test by their owner or by a seed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Dataset, default_tasks, listed, note_on_empty
from prol.data.download import offline_setting
from prol.data.parquet_files import ParquetSplit, agreed_names, class_numbers, read_shard, row_names
from prol.data.split import Collection, require_split_options, split_collection

HUB = "hub:"
_LAYOUT = (
    "expected FILE.parquet, or a folder of parquet files: train*.parquet with test*.parquet or validation*.parquet, "
    "or any others, which are then split by a seed"
)
_TESTS = ("test", "validation")  # the first that exists


def parquet(
    data: str | Path | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    image_column: str | None = None,
    label_column: str | None = None,
    split: str | None = None,
) -> Dataset:
    """Images in parquet files with one label each; classes are named by the file, by text labels, or by number.

    Labels are read at once. Encoded images are copied to an unnamed file on disk at the first `load`, so that any order
    of reading is fast; see docs/reading.md.

    Args:
        data: a parquet file; a folder with `train*.parquet` and `test*.parquet` or `validation*.parquet`, at any depth;
            a folder with parquet files of other names, which are one collection; or "hub:OWNER/NAME".
        seed: draws the test images of each class, if the owner defined no splits.
        test_share: the fraction of each class to test on, if the owner defined no splits: at least one image of a class
            that has two or more. 0 uses every image for training.
        image_column: the column with encoded images, if it is not called image or img.
        label_column: the column with labels, if it is not called label, labels, fine_label, class, target or wnid.
        split: an index file to use instead of a random split.

    >>> import io, tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (9, 7)).save(file, "PNG")
    >>> table = pa.table({"image": [{"bytes": file.getvalue(), "path": None}] * 10, "label": ["cat", "dog"] * 5})
    >>> path = Path(tempfile.mkdtemp(), "pets.parquet")
    >>> pq.write_table(table, path)
    >>> pets = parquet(path)
    >>> pets.class_names, len(pets.train.labels), len(pets.test.labels), pets.train.load([0]).images[0].shape
    (('cat', 'dog'), 8, 2, (7, 9, 3))
    """
    require_split_options(test_share, seed)
    found = find_parquet(data)
    if not found.test:
        collection = read_parquet(found.train, image_column, label_column, found.root)
        return split_collection("parquet", collection, test_share=test_share, seed=seed, stratified=True, split=split)
    if split is not None:
        raise ValueError(f"{str(data)!r} has its own splits, so split={split!r} cannot be used: leave it out")
    return _read_train_and_test(found, image_column, label_column)


def read_parquet(
    files: Sequence[Path], image_column: str | None = None, label_column: str | None = None, root: Path | None = None
) -> Collection:
    """All rows of one or many files, in the order of the files; files that name their classes must agree on them.

    Rows may name image files below `root`, by default the folder that all files are in.
    """
    shards = [read_shard(path, image_column, label_column) for path in files]
    names = agreed_names(shards)
    images = ParquetSplit(shards, class_numbers(shards, names), root)
    return Collection(names, images, row_names(shards), _notes(names, images.labels))


def _read_train_and_test(found: FoundFiles, image_column: str | None, label_column: str | None) -> Dataset:
    train_shards, test_shards = (
        [read_shard(path, image_column, label_column) for path in files] for files in (found.train, found.test)
    )
    names = agreed_names([*train_shards, *test_shards])
    train, test = (
        ParquetSplit(shards, class_numbers(shards, names), found.root) for shards in (train_shards, test_shards)
    )
    unknown = [names[label] for label in np.setdiff1d(test.labels, train.labels)]
    if unknown:
        raise ValueError(
            f"classes with test images but no train images in {str(found.train[0].parent)!r}: {', '.join(unknown)}; "
            f"add the files with their train images, or pass the train files alone to have them split by a seed"
        )
    notes = (*found.notes, *_notes(names, train.labels))
    return Dataset("parquet", names, train, test, default_tasks(len(np.unique(train.labels))), notes=notes)


def _notes(names: tuple[str, ...], labels: NDArray[np.int64]) -> tuple[str, ...]:
    return note_on_empty([names[i] for i in np.setdiff1d(np.arange(len(names)), labels)])


@dataclass(frozen=True)
class FoundFiles:
    """The folder of a data set, and its train and test files, sorted. Without `test`, they are still to be split."""

    root: Path
    train: tuple[Path, ...]
    test: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def find_parquet(data: str | Path | None) -> FoundFiles:
    """The parquet files at a path, or of the data set "hub:OWNER/NAME"."""
    if data is None:
        raise ValueError(
            f"data set 'parquet' needs to know where it is, --data PATH or parquet(PATH), or hub:OWNER/NAME: {_LAYOUT}"
        )
    root = _from_hub(str(data)) if str(data).startswith(HUB) else Path(data).expanduser()
    if root.is_file():
        return FoundFiles(root.parent, (root,))
    if not root.exists():
        raise FileNotFoundError(f"no file or folder {str(root)!r}: {_LAYOUT}")
    below = {path: path.relative_to(root) for path in root.rglob("*.parquet") if path.is_file()}
    files = sorted(
        (path for path, name in below.items() if not any(part.startswith(".") for part in name.parts)),
        key=lambda path: below[path].parts,
    )
    if not files:
        raise ValueError(f"no parquet files in {str(root)!r}: {_LAYOUT}")
    splits = {path: _split_of(below[path]) for path in files}
    tested = next((name for name in _TESTS if name in splits.values()), None)
    train = tuple(path for path in files if splits[path] == "train")
    if tested is None or not train:
        return FoundFiles(root, tuple(files))
    _require_one_set(root, [below[path] for path in train])
    unused = [below[path].as_posix() for path in files if splits[path] not in ("train", tested)]
    note = f"parquet files that are neither train nor {tested} are left out: {listed(unused)}"
    return FoundFiles(root, train, tuple(path for path in files if splits[path] == tested), (note,) if unused else ())


def _split_of(name: Path) -> str | None:
    """The split that a file is named after, or else one of its folders.

    >>> [_split_of(Path(name)) for name in ("data/train-0.parquet", "test/0.parquet", "0.parquet")]
    ['train', 'test', None]
    """
    splits = ("train", *_TESTS)
    named = [split for split in splits if name.name.startswith(split)]
    return next(iter([*named, *(split for split in splits if split in name.parts[:-1])]), None)


def _require_one_set(root: Path, train: Sequence[Path]) -> None:
    """Refuses several data sets in one folder, as in hub repositories with several configurations."""
    parents = {name.parts[:-1] for name in train}
    homes = {Path(*(folders[: folders.index("train")] if "train" in folders else folders)) for folders in parents}
    if len(homes) > 1:
        named = ", ".join(sorted(str(root / home) for home in homes))
        raise ValueError(f"{str(root)!r} contains more than one set of train files: give one of the folders {named}")


def _from_hub(data: str) -> Path:
    """The folder with the parquet files of a hub data set, from the hub's cache or else over the network."""
    name = data.removeprefix(HUB)
    if name.count("/") != 1 or not all(name.split("/")):
        raise ValueError(f"{data!r} is not a data set of the hub: write hub:OWNER/NAME")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.utils import logging as hub_logging

    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)  # its retries would hide our one line
    setting = offline_setting()
    try:
        folder = snapshot_download(
            name, repo_type="dataset", allow_patterns=["*.parquet"], local_files_only=setting is not None
        )
    except Exception as error:  # the hub client has many ways to be offline
        why = f"{setting} forbids asking the hub" if setting else f"the hub did not give it ({type(error).__name__})"
        raise ValueError(
            f"data set {name!r} is not in the hub cache {constants.HF_HUB_CACHE} and {why}: fetch the parquet files "
            f"of https://huggingface.co/datasets/{name} into a folder and pass that folder with --data"
        ) from error
    finally:
        hub_logging.set_verbosity(verbosity)
    return Path(folder)
