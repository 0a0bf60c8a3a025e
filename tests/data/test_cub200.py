from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_sets import bare_machine, fill_classes, packed, write_cub, write_parquet

from prol.data import Dataset
from prol.data.cub200 import CUB200, cub200
from prol.data.published import images_per_task

REAL = Path(__file__).parents[3] / "shared" / "data" / "cub200_128"
BIRDS = {"001.Black_footed_Albatross": (2, 1), "002.Laysan_Albatross": (1, 1), "010.Red_winged_Blackbird": (1, 2)}


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_machine(monkeypatch, tmp_path / "cache")


@pytest.fixture
def official(tmp_path: Path) -> Path:
    return write_cub(tmp_path / "CUB_200_2011", BIRDS)


def assert_miniature(data: Dataset) -> None:
    assert data.name == "cub200"
    assert data.class_names == tuple(BIRDS)
    assert data.train.labels.tolist() == [0, 0, 1, 2]
    assert data.test.labels.tolist() == [0, 1, 2, 2]
    assert data.tasks == 10
    assert data.split is None
    assert "Non-commercial research and education only" in data.licence
    assert data.notes == ("this copy is not the published data set: it has 3 of 200 classes and 8 of 11,788 images",)
    for half in (data.train, data.test):
        assert {image.shape for image in half.load(range(4)).images} == {(10, 12, 3)}


def test_the_official_folder_is_read_from_itself_and_from_its_parent(official: Path) -> None:
    assert_miniature(cub200(official))
    assert_miniature(cub200(official.parent))


def test_the_official_archive_is_unpacked_and_read(official: Path, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    assert_miniature(cub200(packed(official, tmp_path / "downloads" / "CUB_200_2011.tgz").parent))


def test_image_folders_are_read(tmp_path: Path) -> None:
    fill_classes(tmp_path / "train", {name: train for name, (train, _) in BIRDS.items()})
    fill_classes(tmp_path / "test", {name: test for name, (_, test) in BIRDS.items()})
    assert_miniature(cub200(tmp_path))


def test_parquet_files_are_read(tmp_path: Path) -> None:
    for half, labels in (("train", [0, 0, 1, 2]), ("test", [0, 1, 2, 2])):
        write_parquet(tmp_path / f"{half}.parquet", {"label": labels}, {"label": tuple(BIRDS)}, image="image")
    assert_miniature(cub200(tmp_path))


def test_a_listed_image_that_is_missing_is_noted_and_passed_over(official: Path) -> None:
    missing = official / "images" / "002.Laysan_Albatross" / "art_0.jpg"
    missing.unlink()
    data = cub200(official)
    assert data.notes[0] == "1 of 8 images that images.txt lists are not there: a run passes over them"
    assert data.train.labels.tolist() == [0, 0, 1, 2]
    loaded = data.train.load(range(4))
    assert loaded.indices.tolist() == [0, 1, 3]
    assert [(bad.index, bad.path) for bad in loaded.unreadable] == [(2, str(missing))]


def test_a_class_that_no_image_has_is_left_out(official: Path) -> None:
    with (official / "classes.txt").open("a") as file:
        file.write("\n201 201.Dodo\n")
    assert_miniature(cub200(official))


def test_the_order_of_the_lists_does_not_matter(official: Path) -> None:
    for name in ("images.txt", "image_class_labels.txt", "classes.txt"):
        lines = (official / name).read_text().splitlines()
        (official / name).write_text("\n".join(reversed(lines)))
    assert_miniature(cub200(official))


@pytest.mark.parametrize(
    ("name", "line", "complaint"),
    [
        ("images.txt", "9 001.Black_footed_Albatross/new.jpg", "do not list the same images"),
        ("train_test_split.txt", "9 1", "do not list the same images"),
        ("images.txt", "9", r"images\.txt is damaged: '9' is not a number and a value"),
        ("images.txt", "8 ../../private.jpg", r"is damaged: '\.\./\.\./private\.jpg' is outside of images/"),
        ("images.txt", "8 /etc/private.jpg", r"'/etc/private\.jpg' is outside of images/"),
        ("classes.txt", "four 004.Auk", r"classes\.txt is damaged: 'four' is not a whole number"),
        ("image_class_labels.txt", "8 x", r"image_class_labels\.txt is damaged: 'x' is not a whole"),
        ("image_class_labels.txt", "8 77", r"classes\.txt does not list the classes 77"),
    ],
)
def test_lists_that_make_no_sense_are_named(official: Path, name: str, line: str, complaint: str) -> None:
    with (official / name).open("a") as file:
        file.write(line)
    with pytest.raises(ValueError, match=complaint):
        cub200(official)


def test_a_wrong_folder_is_reported_with_what_was_expected_and_found(official: Path) -> None:
    (official / "images.txt").unlink()
    with pytest.raises(
        ValueError, match=r"expected the folder CUB_200_2011 with images/ and .*found classes\.txt, image_"
    ):
        cub200(official)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"CUB-200-2011 is not in {REAL}")
def test_the_whole_data_set_is_as_published() -> None:
    data = cub200(REAL)
    assert data.notes == ()
    assert len(data.class_names) == 200
    assert data.class_names[0] == "001.Black_footed_Albatross"
    assert (len(data.train.labels), len(data.test.labels)) == (5994, 5794)
    assert images_per_task(data.train.labels)[:2] == list(CUB200.train_per_task) == [600, 600]
    assert images_per_task(data.test.labels)[:2] == list(CUB200.test_per_task) == [515, 575]
    for half in (data.train, data.test):
        loaded = half.load(np.linspace(0, len(half.labels) - 1, 30).astype(np.int64))
        assert loaded.unreadable == []
        assert all(min(image.shape[:2]) == 128 for image in loaded.images)
