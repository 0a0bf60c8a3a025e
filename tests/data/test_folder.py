from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prol.data import Subset
from prol.data.folder import FileSplit, folder, read_folder
from prol.data.split import split_content


def fill(root: Path, counts: dict[str, int], ending: str = "png") -> Path:
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", (6, 4), (i, 0, 0)).save(root / name / f"{i:03}.{ending}")
    return root


def paths(split: object) -> list[str]:
    whole, rows = (split.whole, split.rows.tolist()) if isinstance(split, Subset) else (split, None)
    assert isinstance(whole, FileSplit)
    chosen = whole.paths if rows is None else [whole.paths[row] for row in rows]
    return [f"{path.parent.name}/{path.name}" for path in chosen]


def test_train_and_test_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"dog": 3, "cat": 2})
    fill(tmp_path / "test", {"dog": 1, "cat": 2})
    data = folder(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert data.test.labels.tolist() == [0, 0, 1]
    assert paths(data.test) == ["cat/000.png", "cat/001.png", "dog/000.png"]
    assert data.train.load([1]).images[0].shape == (4, 6, 3)


def test_a_class_may_lack_test_images(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"ant": 1, "bee": 1, "cow": 1})
    fill(tmp_path / "test", {"cow": 2})
    data = folder(tmp_path)
    assert data.class_names == ("ant", "bee", "cow")
    assert data.test.labels.tolist() == [2, 2]


def test_a_class_with_test_images_only_is_an_error_that_names_it(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"cat": 1})
    fill(tmp_path / "test", {"cat": 1, "yak": 1, "emu": 1})
    with pytest.raises(ValueError, match=r"no train images in .*: emu, yak; .*train has: cat"):
        folder(tmp_path)


@pytest.mark.parametrize(("here", "missing"), [("train", "test"), ("test", "train")])
def test_one_split_without_the_other_is_an_error(tmp_path: Path, here: str, missing: str) -> None:
    fill(tmp_path / here, {"cat": 2})
    fill(tmp_path / "val", {"cat": 2})
    with pytest.raises(ValueError, match=f"has {here}/CLASS folders but no {missing}/CLASS"):
        folder(tmp_path)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    data = folder(fill(tmp_path, {"train": 4, "boat": 4}))
    assert data.class_names == ("boat", "train")


def test_one_folder_is_split_by_the_seed(tmp_path: Path) -> None:
    fill(tmp_path, {"cat": 10, "dog": 20})
    first, again, other = folder(tmp_path, seed=3), folder(tmp_path, seed=3), folder(tmp_path, seed=4)
    assert Counter(first.test.labels.tolist()) == {0: 2, 1: 4}
    assert paths(first.test) == paths(again.test)
    assert paths(first.test) != paths(other.test)
    assert sorted(paths(first.train) + paths(first.test)) == sorted(paths(other.train) + paths(other.test))


def test_a_seed_draws_the_test_images_it_always_drew(tmp_path: Path) -> None:
    data = folder(fill(tmp_path, {"cat": 10, "dog": 1, "emu": 7}), seed=5, test_share=0.3)
    assert paths(data.test) == ["cat/001.png", "cat/006.png", "cat/007.png", "emu/003.png", "emu/006.png"]
    assert data.split is not None
    assert data.split.test.tolist() == [1, 6, 7, 14, 17]
    assert data.split.rule == "0.3 of each class, seed 5"


def test_a_split_can_be_stored_in_a_file_and_used_again_elsewhere(tmp_path: Path) -> None:
    counts = {"cat": 5, "dog": 5, "cat/deep": 2}
    first = folder(fill(tmp_path / "here", counts), seed=3)
    assert first.split is not None
    (tmp_path / "split.json").write_text(json.dumps(split_content(first.split)))
    again = folder(fill(tmp_path / "there", counts), seed=8, split=tmp_path / "split.json")
    assert paths(again.test) == paths(first.test)
    fill(tmp_path / "there", {"dog": 6})
    with pytest.raises(ValueError, match="was written for 12 images, but here are 13"):
        folder(tmp_path / "there", split=str(tmp_path / "split.json"))


def test_a_folder_with_splits_has_no_random_split_and_takes_no_index_file(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"cat": 1})
    fill(tmp_path / "test", {"cat": 1})
    assert folder(tmp_path).split is None
    with pytest.raises(ValueError, match=r"has its own test/, so split='x.json' cannot be used"):
        folder(tmp_path, split="x.json")


def test_images_are_named_by_their_path_below_the_folder(tmp_path: Path) -> None:
    collection = read_folder(fill(tmp_path, {"dog": 1, "cat/deep": 1, "cat": 1}))
    assert list(collection.image_names) == ["cat/000.png", "cat/deep/000.png", "dog/000.png"]


def test_folders_without_images_are_named_in_a_note(tmp_path: Path) -> None:
    fill(tmp_path / "one", {"cat": 2, "dog": 0, "emu": 0})
    assert folder(tmp_path / "one").notes == (
        f"2 folders in {str(tmp_path / 'one')!r} without images are left out: dog, emu",
    )
    fill(tmp_path / "train", {"cat": 2, "dog": 0})
    fill(tmp_path / "test", {"cat": 1, "dog": 0})
    assert folder(tmp_path).notes == (f"1 folder in {str(tmp_path / 'train')!r} without images is left out: dog",)


def test_a_share_of_zero_keeps_everything_for_training(tmp_path: Path) -> None:
    data = folder(fill(tmp_path, {"cat": 3, "dog": 1}), test_share=0)
    assert data.train.labels.tolist() == [0, 0, 0, 1]
    assert len(data.test.labels) == 0


def test_classes_of_one_image_each_leave_nothing_to_test_on(tmp_path: Path) -> None:
    fill(tmp_path, {"cat": 1, "dog": 1})
    with pytest.raises(ValueError, match=r"every class has a single image.*test_share=0"):
        folder(tmp_path)


def test_images_are_found_at_any_depth_in_sorted_order_and_by_any_common_ending(tmp_path: Path) -> None:
    fill(tmp_path, {"cat/b": 1, "cat/a/deep": 1})
    for name in ("z.JPG", "y.jpeg", "x.BMP", "w.gif", "v.tif", "u.TIFF", "t.webp"):
        Image.new("RGB", (3, 3), "red").save(tmp_path / "cat" / name)
    data = folder(tmp_path, test_share=0)
    assert len(data.train.labels) == 9
    assert paths(data.train)[:3] == ["deep/000.png", "b/000.png", "cat/t.webp"]
    assert all(image.shape[-1] == 3 for image in data.train.load(range(9)).images)


def test_hidden_files_other_files_and_folders_without_images_are_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, {"cat": 2, ".cache": 2, "cat/.thumbs": 2})
    (tmp_path / "cat" / "._000.png").write_bytes(b"junk")
    (tmp_path / "cat" / "notes.txt").write_text("miaow")
    (tmp_path / "annotations").mkdir()
    (tmp_path / "labels.csv").write_text("a,b")
    data = folder(tmp_path, test_share=0)
    assert data.class_names == ("cat",)
    assert paths(data.train) == ["cat/000.png", "cat/001.png"]


@pytest.mark.parametrize(("classes", "tasks"), [(1, 1), (2, 1), (3, 1), (6, 3), (30, 10)])
def test_the_usual_number_of_tasks_grows_with_the_classes_up_to_ten(tmp_path: Path, classes: int, tasks: int) -> None:
    assert folder(fill(tmp_path, {f"c{i:02}": 2 for i in range(classes)})).tasks == tasks


def test_no_path_a_missing_path_and_a_file_are_errors_that_show_the_layout(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--data FOLDER or folder.FOLDER.: expected FOLDER/train/CLASS"):
        folder()
    with pytest.raises(FileNotFoundError, match=r"no folder '.*gone': expected FOLDER/train/CLASS"):
        folder(tmp_path / "gone")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file, not a folder: expected"):
        folder(str(tmp_path / "file"))


def test_a_folder_without_classes_or_images_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no classes in .* \(no folders\): expected FOLDER"):
        folder(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match=r"folders without images: cat\).* endings: \.jpg") as caught:
        folder(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_a_share_out_of_range_is_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(ValueError, match="test_share must be at least 0 and below 1, got"):
        folder(fill(tmp_path, {"cat": 2}), test_share=share)


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        folder(fill(tmp_path, {"cat": 2}), seed=-1)


def test_a_limited_folder_names_a_broken_image_by_its_new_number(tmp_path: Path) -> None:
    fill(tmp_path / "train", {"cat": 3, "dog": 3})
    fill(tmp_path / "test", {"cat": 1, "dog": 1})
    broken = tmp_path / "train" / "dog" / "001.png"
    broken.write_bytes(b"")
    loaded = folder(tmp_path).limited(2).train.load(np.arange(4))
    assert loaded.indices.tolist() == [0, 1, 2]
    assert [(bad.index, bad.path) for bad in loaded.unreadable] == [(3, str(broken))]


def test_a_class_whose_name_is_no_text_is_an_error(tmp_path: Path) -> None:
    for name in (b"cat", b"d\xffg"):
        place = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(place)
        for number in range(2):
            Image.new("RGB", (4, 4)).save(os.fsdecode(os.path.join(place, b"%d.png" % number)))
    with pytest.raises(ValueError, match="rename it"):
        folder(tmp_path)


def test_pipes_and_devices_among_the_images_are_skipped_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for name in ("a.png", "c.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / "cat" / name)
    os.mkfifo(tmp_path / "cat" / "b.png")
    (tmp_path / "cat" / "d.png").symlink_to("/dev/zero")
    (tmp_path / "cat" / "e.png").symlink_to("a.png")  # links to images are images
    unblocking = os.open(tmp_path / "cat" / "b.png", os.O_RDWR | os.O_NONBLOCK)  # else a broken test would never end
    os.write(unblocking, b"this is no image at all")
    loaded = folder(tmp_path, test_share=0).train.load(range(5))
    os.close(unblocking)
    assert loaded.indices.tolist() == [0, 2, 4]
    assert [(bad.index, bad.reason) for bad in loaded.unreadable] == [
        (1, "it is no regular file"),
        (3, "it is no regular file"),
    ]
