"""Image sets in shards: every image in one, sizes alike, and each shard readable alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.small_parquet import encoded, write
from data.small_sets import fill_classes
from prol.data import shards as sharding
from prol.data.shards import Shards, divide, open_shards


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1), st.integers(1, 8), st.integers(0, 3))
def test_every_image_is_in_one_shard_and_sizes_differ_by_at_most_one(
    pieces: list[tuple[int, int]], shards: int, seed: int
) -> None:
    sizes, groups = (np.array(values, dtype=np.int64) for values in zip(*pieces, strict=True))
    parts = divide(sizes, groups, shards, seed)
    found = [(piece, image) for part in parts for piece, first, stop in part.tolist() for image in range(first, stop)]
    assert sorted(found) == [(piece, image) for piece, size in enumerate(sizes) for image in range(size)]
    counts = [int((part[:, 2] - part[:, 1]).sum()) for part in parts]
    assert len(counts) == shards
    assert max(counts) - min(counts) <= 1
    again = divide(sizes, groups, shards, seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_the_first_shard_is_drawn_from_all_over_and_the_others_keep_groups_together() -> None:
    groups = np.repeat(np.arange(10), 100)
    first, *others = (groups[part[:, 0]] for part in divide(np.full(1000, 3), groups, 5, seed=0))
    assert len(np.unique(first)) == 10
    assert max(len(np.unique(part)) for part in others) <= 4


def read(found: Shards) -> list[list[tuple[str, int]]]:
    """The class and the first colour of every image of each shard, which is opened as in another process."""
    contents = []
    for shard in pickle.loads(pickle.dumps(found.shards)):
        names, split = shard()
        loaded = split.load(np.random.default_rng(0).permutation(len(split.labels)))
        assert not loaded.unreadable
        shades = [int(image[0, 0, 0]) for image in loaded.images]
        contents.append([(names[split.labels[i]], shade) for i, shade in zip(loaded.indices, shades, strict=True)])
    return contents


@pytest.mark.parametrize("pieces", [1, 4, 500])
def test_shards_of_parquet_files_have_the_rows_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(sharding, "PIECES", pieces)
    images = [{"bytes": encoded(i), "path": None} for i in range(40)]
    write(tmp_path / "train-0.parquet", ["ant", "bee"] * 12, images[:24], rows_a_group=7)
    write(tmp_path / "train-1.parquet", ["bee", "cow"] * 8, images[24:], rows_a_group=3)
    write(tmp_path / "test-0.parquet", ["ant"], images[:1])
    found = open_shards([str(tmp_path)], 3, seed=1)
    assert found.images == 40
    parts = read(found)
    assert [len(part) for part in parts] == [14, 13, 13]
    expected = [(["ant", "bee"][i % 2], i) for i in range(24)] + [(["bee", "cow"][i % 2], i) for i in range(24, 40)]
    assert sorted(pair for part in parts for pair in part) == sorted(expected)
    files = [str(tmp_path / f"train-{number}.parquet") for number in range(2)]
    assert read(open_shards(files, 3, seed=1)) == parts


def test_an_unreadable_row_has_its_number_in_the_file(tmp_path: Path) -> None:
    images = [{"bytes": b"?" if i == 17 else encoded(i), "path": None} for i in range(20)]
    path = write(tmp_path / "all.parquet", [0, 1] * 10, images)
    bad = []
    for shard in open_shards([str(path)], 4).shards:
        _, split = shard()
        bad += split.load(range(len(split.labels))).unreadable
    assert [one.path for one in bad] == [f"{path}#17"]


def test_only_row_groups_with_wanted_rows_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "all.parquet", [0] * 40, rows_a_group=20)
    names, split = open_shards([str(path)], 2).shards[0]()
    part = split._shards[0].part(np.array([3, 5]))  # type: ignore[attr-defined]
    whole = path.read_bytes()
    found = type(split)([part], part.labels)  # type: ignore[call-arg]
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(100) + whole[middle + 100 :])  # the second row group is damaged
    assert names == ("0",)
    assert [int(image[0, 0, 0]) for image in found.load([0, 1]).images] == [3, 5]


def test_a_folder_is_divided_image_by_image(tmp_path: Path) -> None:
    fill_classes(tmp_path / "train", {"ant": 9, "bee": 4})
    fill_classes(tmp_path / "test", {"ant": 2})
    found = open_shards([str(tmp_path)], 4)
    assert found.images == 13
    parts = read(found)
    assert [len(part) for part in parts] == [4, 3, 3, 3]
    assert {name for name, _ in parts[0]} == {"ant", "bee"}
    everything = open_shards([str(tmp_path / "train")], 1)
    assert sorted(pair for part in parts for pair in part) == sorted(read(everything)[0])


def test_without_a_number_a_shard_has_ten_thousand_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write(tmp_path / "all.parquet", [0] * 40))
    assert len(open_shards([path]).shards) == 1
    monkeypatch.setattr(sharding, "IMAGES_OF_A_SHARD", 10)
    assert len(open_shards([path]).shards) == 4
    monkeypatch.setattr(sharding, "MOST_SHARDS", 3)
    assert len(open_shards([path]).shards) == 3


def test_the_digest_is_of_the_files(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.parquet", [0] * 8), write(tmp_path / "b.parquet", [0] * 9)
    digests = [open_shards([str(path)]).sha256 for path in (one, one, other)]
    assert digests[0] == digests[1] != digests[2]


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    text, numbers = write(tmp_path / "text.parquet", ["ant"] * 3), write(tmp_path / "numbers.parquet", [1] * 3)
    fill_classes(tmp_path / "photos", {"ant": 2})
    for sources, shards, says in (
        ([str(text)], 0, "shards must be at least 1, got 0"),
        ([str(text)], 4, "3 images cannot be divided into 4 shards: use at most 3"),
        ([str(text), str(numbers)], 2, "text in some files and numbers in others"),
        ([str(text), str(tmp_path)], 2, "give one folder, or any number of parquet files"),
        ([str(tmp_path / "nowhere")], 2, "no file or folder"),
        ([str(tmp_path / "photos" / "ant")], 2, "no classes in"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            open_shards(sources, shards)
