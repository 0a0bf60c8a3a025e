"""Large image sets divided into shards, each of which one process can read without the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prol.data.base import Split
from prol.data.folder import FileSplit, training_images
from prol.data.parquet import HUB, FoundFiles, find_parquet
from prol.data.parquet_files import ParquetSplit, agreed_names, class_numbers, opened, read_shard
from prol.data.split import names_sha256

IMAGES_OF_A_SHARD, MOST_SHARDS = 10_000, 1_000
PIECES = 500
"""Pieces of the files that the first shard is drawn from, so that it has images of every class in sorted files, too."""

ShardImages = Callable[[], tuple[tuple[str, ...], Split]]
"""Opens a shard: class names and images. It can be sent to another process."""


@dataclass(frozen=True)
class Shards:
    """An image set in shards; `sha256` is the digest of the names of its files, `notes` are for the user."""

    shards: Sequence[ShardImages]
    images: int
    sha256: str
    notes: tuple[str, ...] = ()


def divide(sizes: NDArray[np.int64], groups: NDArray[np.int64], shards: int, seed: int) -> list[NDArray[np.int64]]:
    """Pieces of so many images each, divided into shards whose sizes differ by at most one image.

    The first shard is made of single pieces, drawn at random; the others of whole groups of pieces where possible,
    in random order, because images of one group are read together.

    Returns:
        for each shard `[P, 3]`: a piece, and the first and the last image in it, the latter exclusive.

    >>> [part.tolist() for part in divide(np.array([2, 2, 2]), np.array([0, 1, 1]), shards=2, seed=0)]
    [[[2, 0, 2], [0, 0, 1]], [[0, 1, 2], [1, 0, 2]]]
    """
    random, total = np.random.default_rng(seed), int(sizes.sum())
    order = random.permutation(len(sizes))
    drawn = int(np.searchsorted(np.cumsum(sizes[order]), -(-total // shards))) + 1
    rank = random.permutation(int(groups.max(initial=0)) + 1)
    rest = np.sort(order[drawn:])
    order = np.concatenate([order[:drawn], rest[np.argsort(rank[groups[rest]], kind="stable")]])
    ends = np.cumsum(sizes[order])
    starts = ends - sizes[order]
    found = []
    for first, stop in pairwise(-(-total * np.arange(shards + 1) // shards)):
        part = slice(np.searchsorted(ends, first, "right"), np.searchsorted(starts, stop, "left"))
        inside = np.maximum(starts[part], first) - starts[part], np.minimum(ends[part], stop) - starts[part]
        found.append(np.stack([order[part], *inside], axis=1))
    return found


def open_shards(sources: Sequence[str], shards: int | None = None, seed: int = 0) -> Shards:
    """The training images of one folder of `CLASS/*.jpg`, or of parquet files, in shards.

    Args:
        sources: a folder, or parquet files, a folder or "hub:OWNER/NAME" of them.
        shards: their number; by default one for each 10,000 images, at most 1,000.
        seed: draws which images are in which shard.
    """
    if shards is not None and shards < 1:
        raise ValueError(f"shards must be at least 1, got {shards}")
    places = [source if source.startswith(HUB) else os.path.abspath(os.path.expanduser(source)) for source in sources]
    if len(places) == 1 and Path(places[0]).is_dir() and next(Path(places[0]).rglob("*.parquet"), None) is None:
        return _folder_shards(Path(places[0]), shards, seed)
    found = [find_parquet(place) for place in places]
    if len(found) > 1 and not all(Path(place).is_file() for place in places):
        raise ValueError("give one folder, or any number of parquet files")
    root = found[0].root if len(found) == 1 else Path(os.path.commonpath([one.root for one in found]))
    files = tuple(dict.fromkeys(path for one in found for path in one.train))
    return _parquet_shards(FoundFiles(root, files, notes=found[0].notes), shards, seed)


def _number(images: int, shards: int | None) -> int:
    if not images:
        raise ValueError("there are no images to learn")
    wanted = min(MOST_SHARDS, -(-images // IMAGES_OF_A_SHARD)) if shards is None else shards
    if wanted > images:
        raise ValueError(f"{images} images cannot be divided into {wanted} shards: use at most {images}")
    return wanted


def _folder_shards(root: Path, shards: int | None, seed: int) -> Shards:
    found = training_images(root)
    images, names = found.images, found.class_names
    assert isinstance(images, FileSplit)
    count = len(images.labels)
    parts = divide(np.ones(count, dtype=np.int64), np.arange(count), _number(count, shards), seed)
    splits = [FileSplit(tuple(images.paths[row] for row in part[:, 0]), images.labels[part[:, 0]]) for part in parts]
    return Shards(
        [partial(_files, names, split) for split in splits], count, names_sha256(found.image_names), found.notes
    )


def _files(names: tuple[str, ...], images: FileSplit) -> tuple[tuple[str, ...], Split]:
    return names, images


def _parquet_shards(found: FoundFiles, shards: int | None, seed: int) -> Shards:
    groups, outlines = list[tuple[Path, int, int]](), []
    for path in found.train:
        shard = read_shard(path)  # checks every label; one is enough to compare the files
        outlines.append(replace(shard, labels=shard.labels[:1]))
        with opened(path) as file:
            ends = np.cumsum([0, *(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))])
        groups += [(path, first, stop) for first, stop in pairwise(ends.tolist())]
    agreed_names(outlines)
    total = sum(stop - first for _, first, stop in groups)
    wanted = _number(total, shards)
    most = max(1, total // (wanted * PIECES))
    pieces = [
        (number, path, start, min(start + most, stop))
        for number, (path, first, stop) in enumerate(groups)
        for start in range(first, stop, most)
    ]
    sizes, owners = np.array([(stop - start, number) for number, _, start, stop in pieces], dtype=np.int64).T
    images = [
        partial(_rows, found.root, [(*pieces[piece][1:3], first, stop) for piece, first, stop in part.tolist()])
        for part in divide(sizes, owners, wanted, seed)
    ]
    digest = names_sha256(f"{os.path.relpath(path, found.root)}#{first}-{stop}" for path, first, stop in groups)
    return Shards(images, total, digest, found.notes)


def _rows(root: Path, parts: Sequence[tuple[Path, int, int, int]]) -> tuple[tuple[str, ...], Split]:
    """Rows of files: in each, from a row on, from a first to a last one."""
    rows: dict[Path, list[NDArray[np.int64]]] = {}
    for path, start, first, stop in parts:
        rows.setdefault(path, []).append(np.arange(start + first, start + stop))
    shards = [read_shard(path).part(np.sort(np.concatenate(found))) for path, found in rows.items()]
    names = agreed_names(shards)
    return names, ParquetSplit(shards, class_numbers(shards, names), root)
