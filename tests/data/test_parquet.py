"""Parquet files: columns, class names, splits, shards, and images that come right in any order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from small_parquet import encoded, write

from prol.data import Split, parquet_files
from prol.data.parquet import parquet, read_parquet
from prol.data.split import split_content

PETS = ["cat", "dog", "emu"]


def values(split: Split, indices: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """The first colour of each image, which identifies it."""
    loaded = split.load(indices)
    assert loaded.unreadable == []
    assert loaded.indices.tolist() == list(indices)
    return [int(image[0, 0, 0]) for image in loaded.images]


# Columns, labels and class names


def test_one_file_with_named_classes_is_split_by_the_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", [0, 1, 2] * 5, names=PETS)
    data, again, other = parquet(path), parquet(str(path)), parquet(path, seed=1)
    assert data.class_names == ("cat", "dog", "emu")
    assert (data.name, data.tasks, data.notes) == ("parquet", 1, ())
    assert Counter(data.test.labels.tolist()) == {0: 1, 1: 1, 2: 1}
    assert len(data.train.labels) == 12
    assert data.split is not None
    assert again.split is not None
    assert other.split is not None
    assert data.split.test.tolist() == again.split.test.tolist() != other.split.test.tolist()
    assert values(data.test, [2, 0, 1]) == [int(row) for row in data.split.test[[2, 0, 1]]]


def test_images_come_with_their_labels_in_any_order_over_many_row_groups(tmp_path: Path) -> None:
    labels = [i % 3 for i in range(50)]
    collection = read_parquet([write(tmp_path / "pets.parquet", labels, names=PETS)])
    order = np.random.default_rng(0).permutation(50)
    assert collection.images.labels.tolist() == labels
    assert values(collection.images, order) == order.tolist()
    assert collection.images.load([]).images == []


@pytest.mark.parametrize(
    "feature",
    [
        {"_type": "ClassLabel", "names": PETS},
        {"num_classes": 3, "names": PETS, "names_file": None, "id": None, "_type": "ClassLabel"},
        {"_type": "ClassLabel", "names": {"2": "emu", "0": "cat", "1": "dog"}},
        {"dtype": {"class_label": {"names": {"0": "cat", "1": "dog", "2": "emu"}}}},
    ],
    ids=["list", "old list", "numbered", "nested"],
)
def test_class_names_are_taken_from_the_schema_in_every_form(tmp_path: Path, feature: Any) -> None:
    collection = read_parquet([write(tmp_path / "pets.parquet", [2, 0, 1], feature=feature)])
    assert collection.class_names == ("cat", "dog", "emu")
    assert collection.images.labels.tolist() == [2, 0, 1]


@pytest.mark.parametrize("feature", [{"dtype": "int64", "_type": "Value"}, None, "odd"])
def test_numbers_without_names_are_their_own_names_in_numeric_order(tmp_path: Path, feature: Any) -> None:
    collection = read_parquet([write(tmp_path / "pets.parquet", [10, 2, 33, 2], feature=feature)])
    assert collection.class_names == ("2", "10", "33")
    assert collection.images.labels.tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_text_labels_are_classes_in_sorted_order(tmp_path: Path, kind: Any) -> None:
    labels = ["emu", "cat", "emu", "dog", "cat"]
    collection = read_parquet([write(tmp_path / "pets.parquet", labels, label_type=kind, rows_a_group=2)])
    assert collection.class_names == ("cat", "dog", "emu")
    assert collection.images.labels.tolist() == [2, 0, 2, 1, 0]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int64(), pa.dictionary(pa.int8(), pa.int32())], ids=str)
def test_labels_may_be_whole_numbers_of_any_width(tmp_path: Path, kind: Any) -> None:
    collection = read_parquet([write(tmp_path / "pets.parquet", [1, 0, 2], names=PETS, label_type=kind)])
    assert collection.images.labels.tolist() == [1, 0, 2]
    assert collection.images.labels.dtype == np.int64


def test_images_may_be_a_plain_column_of_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", ["a", "b"], [encoded(7), encoded(8)])
    assert values(read_parquet([path]).images, [1, 0]) == [8, 7]


@pytest.mark.parametrize("label", ["label", "labels", "fine_label", "class", "target", "wnid"])
def test_columns_are_found_by_their_usual_names(tmp_path: Path, label: str) -> None:
    path = write(tmp_path / "pets.parquet", ["a", "b"], columns=("img", label))
    assert read_parquet([path]).class_names == ("a", "b")


def test_columns_of_other_names_are_found_when_given(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", ["a"] * 5, columns=("photo", "animal"))
    data = parquet(path, image_column="photo", label_column="animal")
    assert data.class_names == ("a",)
    with pytest.raises(ValueError, match=r"none of the columns image, img: .* image_column=: photo, animal"):
        parquet(path)
    with pytest.raises(ValueError, match=r"none of the columns label, labels, .* label_column=: photo, animal"):
        parquet(path, image_column="photo")
    with pytest.raises(ValueError, match=r"no column 'kind': choose .* label_column=: photo, animal"):
        parquet(path, image_column="photo", label_column="kind")


def test_a_column_that_holds_no_images_or_no_labels_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", [0.5, 1.5])
    with pytest.raises(ValueError, match=r"column 'label' of .* contains double: labels are whole numbers or text"):
        parquet(path)
    with pytest.raises(ValueError, match=r"column 'label' of .* contains double: encoded images are needed"):
        parquet(path, image_column="label")


def test_an_image_without_bytes_is_read_from_its_path_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(encoded(9))
    images = [{"bytes": None, "path": "photos/a.png"}, {"bytes": None, "path": "photos/b.png"}, None]
    loaded = read_parquet([write(tmp_path / "pets.parquet", ["a"] * 3, images)]).images.load([0, 1, 2])
    assert [int(image[0, 0, 0]) for image in loaded.images] == [9]
    assert [(bad.index, bad.path, bad.reason) for bad in loaded.unreadable] == [
        (1, str(tmp_path / "photos" / "b.png"), "the file is gone"),
        (2, f"{tmp_path / 'pets.parquet'}#2", "there is no image"),
    ]


def test_rows_name_no_file_outside_of_the_data_set(tmp_path: Path) -> None:
    outside, folder = tmp_path / "private.png", tmp_path / "pets"
    outside.write_bytes(encoded(9))
    (folder / "photos").mkdir(parents=True)
    (folder / "photos" / "a.png").write_bytes(encoded(7))
    (folder / "photos" / "link.png").symlink_to(outside)
    named = ["../photos/a.png", str(outside), "../../private.png", "../photos/link.png", "a\0b", "~/private.png"]
    images = [{"bytes": None, "path": name} for name in named]
    for name in ("train", "test"):
        write(folder / name / "0.parquet", ["a"] * len(images), images)
    for loaded in (parquet(folder).train.load(range(6)), parquet(folder).test.load(range(6))):
        assert [int(image[0, 0, 0]) for image in loaded.images] == [7]
        reasons = {bad.index: bad.reason for bad in loaded.unreadable}
        assert reasons.pop(5) == "the file is gone"
        assert set(reasons.values()) == {f"its path is outside of the data set's folder {str(folder)!r}"}
        assert list(reasons) == [1, 2, 3, 4]
    alone = parquet(folder / "train" / "0.parquet", test_share=0).train.load(range(6))  # the folder is the file's own
    assert [bad.index for bad in alone.unreadable] == list(range(6))


# Many files, and splits


def test_shards_are_one_collection_in_sorted_order_and_texts_are_joined(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", ["dog", "emu"])
    write(tmp_path / "a.parquet", ["emu", "cat", "cat"])
    data = parquet(tmp_path, test_share=0)
    assert data.class_names == ("cat", "dog", "emu")
    assert data.train.labels.tolist() == [2, 0, 0, 1, 2]
    assert values(data.train, [4, 0, 3, 2]) == [1, 0, 0, 2]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train.parquet", "test.parquet"),
        ("train-00000-of-00001.parquet", "validation-00000-of-00001.parquet"),
        ("data/train-0.parquet", "data/test-0.parquet"),
        ("default/train/0000.parquet", "default/test/0000.parquet"),
        ("train/part/0.parquet", "validation/part/0.parquet"),
    ],
)
def test_the_owners_splits_are_taken_as_they_are(tmp_path: Path, train: str, test: str) -> None:
    write(tmp_path / train, [0, 0, 1], names=PETS[:2])
    write(tmp_path / test, [1], [{"bytes": encoded(77), "path": None}], names=PETS[:2])
    data = parquet(tmp_path)
    assert data.train.labels.tolist() == [0, 0, 1]
    assert values(data.train, [2, 0]) == [2, 0]
    assert values(data.test, [0]) == [77]
    assert data.split is None


def test_test_files_go_before_validation_files_which_are_then_named_in_a_note(tmp_path: Path) -> None:
    for name in ("train-0", "train-1", "validation", "test", "extra"):
        write(tmp_path / "data" / f"{name}.parquet", [0] * (1 + (name == "test")), names=["cat"])
    data = parquet(tmp_path)
    assert (len(data.train.labels), len(data.test.labels)) == (2, 2)
    assert data.notes == (
        "parquet files that are neither train nor test are left out: data/extra.parquet, data/validation.parquet",
    )


def test_text_labels_of_both_splits_are_numbered_alike(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", ["cat", "dog", "emu"])
    write(tmp_path / "test.parquet", ["emu", "dog"])
    data = parquet(tmp_path)
    assert data.class_names == ("cat", "dog", "emu")
    assert data.test.labels.tolist() == [2, 1]


def test_train_files_alone_are_split(tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet", [0] * 5, names=["cat"])
    data = parquet(tmp_path)
    assert (len(data.train.labels), len(data.test.labels)) == (4, 1)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (["cat", "dog", "yak"], "only the first has emu; only the second has yak"),
        (["cat", "emu", "dog"], "class number 1 is 'dog' in the first and 'emu' in the second"),
        (["cat", "dog"], "only the first has emu; only the second has no other"),
        (None, "only train.parquet names its classes"),
    ],
)
@pytest.mark.parametrize("name", ["test.parquet", "train_more.parquet"])
def test_files_that_do_not_agree_on_the_classes_are_refused(
    tmp_path: Path, other: list[str] | None, said: str, name: str
) -> None:
    write(tmp_path / "train.parquet", [0, 1, 2], names=PETS)
    write(tmp_path / name, [0, 1], names=other)
    with pytest.raises(ValueError, match=f"train.parquet' and .*{name}' do not agree on the classes: {said}"):
        parquet(tmp_path)


def test_classes_that_are_only_tested_are_refused_with_their_names(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", ["cat", "dog"])
    write(tmp_path / "test.parquet", ["cat", "yak", "emu"])
    with pytest.raises(ValueError, match=r"test images but no train images in .*: emu, yak; "):
        parquet(tmp_path)


def test_text_in_one_file_and_numbers_in_another_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ["cat", "dog"])
    write(tmp_path / "b.parquet", [1, 2])
    with pytest.raises(ValueError, match="text in some files and numbers in others"):
        parquet(tmp_path)


def test_several_data_sets_in_one_folder_are_refused_with_their_folders(tmp_path: Path) -> None:
    for name in ("small", "large"):
        write(tmp_path / name / "train-0.parquet", ["cat"])
        write(tmp_path / name / "test-0.parquet", ["cat"])
    with pytest.raises(ValueError, match=r"more than one set of train files: .*large, .*small"):
        parquet(tmp_path)
    assert len(parquet(tmp_path / "small").train.labels) == 1


def test_no_path_a_missing_path_and_an_empty_folder_are_errors_that_show_the_layout(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--data PATH or parquet\(PATH\), or hub:OWNER/NAME: expected FILE.parquet"):
        parquet()
    with pytest.raises(FileNotFoundError, match=r"no file or folder '.*gone': expected FILE.parquet"):
        parquet(tmp_path / "gone")
    (tmp_path / ".cache").mkdir()
    write(tmp_path / ".cache" / "train.parquet", ["cat"])
    with pytest.raises(ValueError, match=r"no parquet files in .*: expected FILE.parquet"):
        parquet(tmp_path)


# Cuts


def test_a_split_can_be_stored_in_a_file_and_used_again(tmp_path: Path) -> None:
    write(tmp_path / "pets" / "a.parquet", ["cat", "dog"] * 6)
    write(tmp_path / "pets" / "b.parquet", ["cat", "dog"] * 2)
    first = parquet(tmp_path / "pets", seed=5, test_share=0.3)
    assert first.split is not None
    (tmp_path / "split.json").write_text(json.dumps(split_content(first.split)))
    again = parquet(tmp_path / "pets", split=str(tmp_path / "split.json"))
    assert again.split is not None
    assert again.split.test.tolist() == first.split.test.tolist()
    assert again.split.rule == "0.3 of each class, seed 5"
    (tmp_path / "pets" / "b.parquet").rename(tmp_path / "pets" / "c.parquet")
    with pytest.raises(ValueError, match="images of other names"):
        parquet(tmp_path / "pets", split=str(tmp_path / "split.json"))


def test_splits_of_the_owner_take_no_index_file(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", ["cat"])
    write(tmp_path / "test.parquet", ["cat"])
    with pytest.raises(ValueError, match=r"has its own splits, so split='x.json' cannot be used"):
        parquet(tmp_path, split="x.json")


@pytest.mark.parametrize(
    ("more", "said"), [({"test_share": 1.0}, "test_share must be"), ({"seed": -1}, "seed must be")]
)
def test_a_share_or_seed_out_of_range_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parquet(write(tmp_path / "pets.parquet", ["cat"]), **more)


def test_rows_are_named_by_file_and_number(tmp_path: Path) -> None:
    files = [write(tmp_path / "pets" / place, ["cat"] * 2) for place in ("a.parquet", "more/b.parquet")]
    names = ["a.parquet#0", "a.parquet#1", "more/b.parquet#0", "more/b.parquet#1"]
    assert list(read_parquet(files).image_names) == names


# Reading once


def test_images_are_read_only_when_the_first_is_requested_and_then_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counted(shards: Sequence[Any], whole: Any = parquet_files._records) -> Any:
        read.extend(shard.path for shard in shards)
        return whole(shards)

    monkeypatch.setattr(parquet_files, "_records", counted)
    paths = [write(tmp_path / f"{half}.parquet", [0, 1, 2] * 9, names=PETS) for half in ("train", "test")]
    data = parquet(tmp_path)
    assert read == []
    assert values(data.train, [20]) == [20]
    assert read == paths[:1]
    paths[0].unlink()
    assert values(data.train, range(27)) == list(range(27))
    assert values(data.test, [3]) == [3]
    assert read == paths


def test_many_threads_may_ask_at_once_and_images_are_still_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def counted(shards: Sequence[Any], whole: Any = parquet_files._records) -> Any:
        reads.append(len(shards))
        return whole(shards)

    monkeypatch.setattr(parquet_files, "_records", counted)
    images = read_parquet([write(tmp_path / "pets.parquet", ["cat"] * 60)]).images
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda start: values(images, range(start, 60, 8)), range(8)))
    assert found == [list(range(start, 60, 8)) for start in range(8)]
    assert reads == [1]


def test_a_file_that_changed_since_it_was_opened_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", ["cat"] * 6)
    images = read_parquet([path]).images
    write(path, ["cat"] * 4)
    with pytest.raises(ValueError, match=r"pets.parquet' had 6 rows when it was opened and has 4 now"):
        images.load([0])
