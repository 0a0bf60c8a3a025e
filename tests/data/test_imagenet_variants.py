from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_sets import bare_machine, fill_classes, packed, write_parquet

from prol.data import ArraySplit, Dataset, Split, Subset
from prol.data.folder import FileSplit
from prol.data.imagenet_variants import IMAGENET_A, IMAGENET_R, imagenet_a, imagenet_r
from prol.data.published import differences
from prol.data.split import split_content

Opener = Callable[..., Dataset]

COUNTS = {"n01443537": 7, "n01484850": 4, "n02051845": 9}
BOTH = pytest.mark.parametrize(
    ("opener", "name", "tested"), [(imagenet_r, "imagenet-r", 4), (imagenet_a, "imagenet-a", 10)], ids=["R", "A"]
)


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_machine(monkeypatch, tmp_path / "cache")


def official(root: Path) -> Path:
    fill_classes(root, COUNTS)
    (root / "README.txt").write_text("Please cite.")
    return root


def paths(split: Split) -> list[str]:
    assert isinstance(split, Subset)
    assert isinstance(split.whole, FileSplit)
    return [f"{split.whole.paths[row].parent.name}/{split.whole.paths[row].name}" for row in split.rows]


@BOTH
def test_the_official_folder_is_split_by_the_share_of_the_paper(
    tmp_path: Path, opener: Opener, name: str, tested: int
) -> None:
    official(tmp_path / name)
    data = opener(tmp_path)
    assert data.name == name.replace("-", "_")
    assert data.class_names == tuple(COUNTS)
    assert data.tasks == 10
    assert (len(data.train.labels), len(data.test.labels)) == (20 - tested, tested)
    assert np.bincount(np.concatenate([data.train.labels, data.test.labels])).tolist() == list(COUNTS.values())
    assert sorted(paths(data.train) + paths(data.test)) == sorted(
        f"{name}/art_{i}.jpg" for name, count in COUNTS.items() for i in range(count)
    )
    for half in (data.train, data.test):
        assert all(paths(half)[i].startswith(data.class_names[label]) for i, label in enumerate(half.labels))
        assert len(half.load(range(len(half.labels))).images) == len(half.labels)
    assert "MIT licence; the images belong to their owners" in data.licence
    assert len(data.notes) == 1
    assert "3 of 200 classes and 20 of" in data.notes[0]


@BOTH
def test_the_archive_gives_the_same_splits_as_the_folder(
    tmp_path: Path, opener: Opener, name: str, tested: int
) -> None:
    (tmp_path / "downloads").mkdir()
    folder = official(tmp_path / name)
    archive = packed(folder, tmp_path / "downloads" / f"{name}.tar")
    from_folder, from_archive = opener(folder), opener(archive.parent)
    assert paths(from_archive.test) == paths(from_folder.test)
    assert len(paths(from_archive.test)) == tested
    assert from_archive.split is not None
    assert from_folder.split is not None
    assert from_archive.split.images_sha256 == from_folder.split.images_sha256


def test_the_seed_and_the_share_draw_the_splits_from_all_images_together(tmp_path: Path) -> None:
    official(tmp_path)
    first, again, other = imagenet_a(tmp_path), imagenet_a(tmp_path, seed=0), imagenet_a(tmp_path, seed=1)
    assert paths(first.test) == paths(again.test) != paths(other.test)
    assert len(imagenet_a(tmp_path, test_share=0.2).test.labels) == 4
    shares = {tuple(np.bincount(imagenet_r(tmp_path, seed=seed).test.labels, minlength=3)) for seed in range(20)}
    assert len(shares) > 1, "every class has the same share: the cut is stratified"


def test_the_split_is_stored_and_can_be_used_again(tmp_path: Path) -> None:
    data = imagenet_r(official(tmp_path / "imagenet-r"), seed=5)
    assert data.split is not None
    assert (data.split.images, data.split.rule) == (20, "0.2 of all images, seed 5")
    (tmp_path / "split.json").write_text(json.dumps(split_content(data.split)))
    again = imagenet_r(tmp_path, split=str(tmp_path / "split.json"))
    assert paths(again.test) == paths(data.test)


@pytest.mark.parametrize(("share", "seed"), [(1.0, 0), (-0.1, 0), (0.2, -1)])
def test_a_share_or_seed_out_of_range_is_refused(tmp_path: Path, share: float, seed: int) -> None:
    with pytest.raises(ValueError, match=r"test_share must be|seed must be"):
        imagenet_r(official(tmp_path), test_share=share, seed=seed)


@BOTH
def test_splits_that_other_projects_left_are_used_and_noted(
    tmp_path: Path, opener: Opener, name: str, tested: int
) -> None:
    fill_classes(tmp_path / name / "train", COUNTS)
    fill_classes(tmp_path / name / "test", dict.fromkeys(COUNTS, tested), first=50)
    data = opener(tmp_path, seed=3)
    assert np.bincount(data.train.labels).tolist() == list(COUNTS.values())
    assert np.bincount(data.test.labels).tolist() == [tested] * 3
    assert data.split is None
    assert data.class_names == tuple(COUNTS)
    assert "is split into train and test already, so seed and test_share have no effect" in data.notes[0]
    with pytest.raises(ValueError, match=r"has its own train and test, so split='a.json' cannot be used"):
        opener(tmp_path, split="a.json")


@BOTH
def test_parquet_of_one_shard_name_is_split(tmp_path: Path, opener: Opener, name: str, tested: int) -> None:
    labels = [name for name, count in COUNTS.items() for _ in range(count)]
    for shard, half in enumerate((labels[:12], labels[12:])):
        path = tmp_path / name / "test" / f"test-0000{shard}-of-00002.parquet"
        write_parquet(path, {"class_name": ["fish"] * len(half), "wnid": half}, {}, image="image")
    data = opener(tmp_path)
    assert data.class_names == tuple(COUNTS)
    assert (len(data.train.labels), len(data.test.labels)) == (20 - tested, tested)
    assert data.split is not None
    assert len(data.test.load([0, 1]).images) == 2


def test_parquet_of_both_splits_is_taken_as_it_is(tmp_path: Path) -> None:
    names = {"label": tuple(COUNTS)}
    write_parquet(tmp_path / "train.parquet", {"label": [0, 0, 1, 2]}, names, image="image")
    write_parquet(tmp_path / "test.parquet", {"label": [2, 0]}, names, image="image")
    data = imagenet_r(tmp_path)
    assert data.train.labels.tolist() == [0, 0, 1, 2]
    assert data.test.labels.tolist() == [2, 0]
    assert data.split is None
    assert "already" in data.notes[0]


def test_classes_without_images_are_left_out_with_a_note(tmp_path: Path) -> None:
    official(tmp_path)
    (tmp_path / "n01500000").mkdir()
    (tmp_path / "sketches").mkdir()
    data = imagenet_a(tmp_path)
    assert data.class_names == tuple(COUNTS)
    assert "n01500000" in data.notes[0]


def test_folders_without_any_image_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "n01500000").mkdir()
    with pytest.raises(ValueError, match="contain no images"):
        imagenet_a(tmp_path)


def test_a_wrong_folder_is_reported_with_what_was_expected_and_found(tmp_path: Path) -> None:
    fill_classes(tmp_path / "mine", {"cat": 1, "dog": 1})
    with pytest.raises(ValueError, match=r"folders named like n01443537;.*imagenet-r\.tar; found cat/, dog/"):
        imagenet_r(tmp_path / "mine")


def whole(per_class: list[int], test_share: float = 0.2) -> Dataset:
    """A data set of so many images in each class, without pixels."""
    labels = np.repeat(np.arange(len(per_class)), per_class)
    tested = np.arange(len(labels)) % round(1 / test_share) == 0
    none = np.zeros((0, 1, 1, 3), np.uint8)
    return Dataset("whole", (), ArraySplit(none, labels[~tested]), ArraySplit(none, labels[tested]))


def spread(totals: tuple[int, ...]) -> list[int]:
    """Twenty classes for each task, with so many images together."""
    return [total // 20 + (i < total % 20) for total in totals for i in range(20)]


def test_a_complete_imagenet_r_is_checked_by_its_totals_per_task() -> None:
    totals = IMAGENET_R.images_per_task
    assert sum(totals) == IMAGENET_R.images == 30_000
    assert differences(whole(spread(totals)), IMAGENET_R) == ()
    moved = (totals[0] + 1, totals[1] - 1, *totals[2:])
    (note,) = differences(whole(spread(moved)), IMAGENET_R)
    assert note == (
        "this copy is not the published data set: its first tasks have 3232, 3605, 2175, 2933, 3519, 2770, 2842, 2277, "
        "3110, 3537 images in place of 3231, 3606, 2175, 2933, 3519, 2770, 2842, 2277, 3110, 3537"
    )


def test_the_public_list_of_imagenet_a_that_lacks_a_class_is_noted() -> None:
    assert differences(whole([37] * 100 + [38] * 100, 0.5), IMAGENET_A) == ()
    (note,) = differences(whole([37] * 100 + [38] * 99, 0.5), IMAGENET_A)
    assert "199 of 200 classes and 7,462 of 7,500 images" in note
