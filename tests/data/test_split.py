"""Random splits, index files, and the development split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from prol.data import ArraySplit, Dataset, Loaded, Split, TrainTestSplit
from prol.data.base import note_on_empty
from prol.data.split import Collection, development, names_sha256, read_split, split_collection, split_content


def collection(counts: list[int], shuffle: int | None = None) -> Collection:
    """`counts[c]` images of class c; image i is filled with the number i."""
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    if shuffle is not None:
        labels = np.random.default_rng(shuffle).permutation(labels)
    images = np.zeros((len(labels), 1, 1, 3), np.uint8) + np.arange(len(labels), dtype=np.uint8)[:, None, None, None]
    names = tuple(f"c{i}" for i in range(len(counts)))
    return Collection(names, ArraySplit(images, labels), [f"{i}.png" for i in range(len(labels))])


def split_of(images: Collection, **options: Any) -> tuple[Split, Split, TrainTestSplit]:
    data = split_collection("pets", images, **options)
    assert data.split is not None
    return data.train, data.test, data.split


counts_of_classes = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda counts: max(counts) > 1)


@given(counts=counts_of_classes, share=st.floats(0.01, 0.99), seed=st.integers(0, 2**32), shuffle=st.integers(0, 9))
def test_every_class_is_split_near_its_share_and_never_emptied(
    counts: list[int], share: float, seed: int, shuffle: int
) -> None:
    train, test, _ = split_of(collection(counts, shuffle), test_share=share, seed=seed, stratified=True)
    for label, count in enumerate(counts):
        tested = int(np.sum(test.labels == label))
        assert tested + np.sum(train.labels == label) == count
        assert (tested > 0) == (count > 1)
        assert tested < max(count, 1)
        assert count < 2 or abs(tested - share * count) <= 1


@given(
    counts=counts_of_classes,
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
    stratified=st.booleans(),
)
def test_both_splits_together_are_the_collection_in_its_order(
    counts: list[int], share: float, seed: int, stratified: bool
) -> None:
    whole = collection(counts, shuffle=1)
    train, test, cut = split_of(whole, test_share=share, seed=seed, stratified=stratified)
    rows = [[int(image[0, 0, 0]) for image in half.load(range(len(half.labels))).images] for half in (train, test)]
    assert rows[0] == sorted(rows[0])
    assert rows[1] == sorted(rows[1]) == cut.test.tolist()
    assert sorted(rows[0] + rows[1]) == list(range(sum(counts)))
    assert whole.images.labels[cut.test].tolist() == test.labels.tolist()


def test_the_drawing_of_a_seed_stays_what_it_was() -> None:
    # Accuracies of earlier runs can be compared only while a seed tests on the same images.
    _, _, cut = split_of(collection([10, 1, 7]), test_share=0.3, seed=5, stratified=True)
    assert cut.test.tolist() == [1, 6, 7, 14, 17]
    _, _, cut = split_of(collection([10, 1, 7]), test_share=0.3, seed=5, stratified=False)
    assert cut.test.tolist() == np.sort(np.random.default_rng(5).permutation(18)[:5]).tolist()


def test_a_split_over_all_images_does_not_look_at_classes() -> None:
    first, second = collection([50, 50]), collection([99, 1])
    cuts = [split_of(each, test_share=0.2, seed=0, stratified=False)[2] for each in (first, second)]
    assert len(cuts[0].test) == 20
    assert cuts[0].test.tolist() == cuts[1].test.tolist()
    assert cuts[0].rule == "0.2 of all images, seed 0"


@pytest.mark.parametrize("stratified", [True, False])
def test_a_share_of_zero_tests_on_nothing(stratified: bool) -> None:
    train, test, cut = split_of(collection([3, 1]), test_share=0, seed=0, stratified=stratified)
    assert (len(train.labels), len(test.labels), cut.test.tolist()) == (4, 0, [])
    assert test.load([]).images == []


def test_too_few_images_to_test_on_are_refused() -> None:
    with pytest.raises(ValueError, match=r"every class has a single image.*test_share=0"):
        split_of(collection([1, 1]), test_share=0.2, seed=0, stratified=True)
    with pytest.raises(ValueError, match=r"1 images cannot be split .*test_share=0"):
        split_of(collection([1]), test_share=0.2, seed=0, stratified=False)


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="test_share must be at least 0 and below 1, got"):
        split_of(collection([2]), test_share=share, seed=0, stratified=True)


# Index files


def content(**changed: Any) -> dict[str, Any]:
    names = [f"{i}.png" for i in range(6)]
    return {"rule": "by hand", "images": 6, "images_sha256": names_sha256(names), "test": [4, 1], **changed}


def stored(folder: Path, **changed: Any) -> Path:
    path = folder / "split.json"
    path.write_text(json.dumps(content(**changed)))
    return path


def test_an_index_file_takes_the_place_of_the_drawing(tmp_path: Path) -> None:
    train, test, cut = split_of(
        collection([3, 3]), test_share=0.2, seed=9, stratified=True, split=str(stored(tmp_path))
    )
    assert cut.rule == "by hand"
    assert cut.test.tolist() == [1, 4]
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 1, 1], [0, 1])


@given(counts=counts_of_classes, seed=st.integers(0, 99), stratified=st.booleans())
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], seed: int, stratified: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.json"
    _, _, cut = split_of(collection(counts), test_share=0.4, seed=seed, stratified=stratified)
    path.write_text(json.dumps(split_content(cut)))
    again = read_split(path)
    assert split_content(again) == split_content(cut)
    assert again.test.dtype == np.int64


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"images": 7}, "was written for 7 images, but here are 6"),
        ({"images_sha256": "ab" * 32}, r"images of other names \(sha256 abababababab, here "),
    ],
)
def test_an_index_file_of_other_images_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split_of(collection([3, 3]), test_share=0.2, seed=0, stratified=True, split=stored(tmp_path, **changed))


@pytest.mark.parametrize("test", [[0, 0], [6], [-1], [0.5], ["a"], [[0]], [True]])
def test_test_images_that_are_no_rows_are_refused(tmp_path: Path, test: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"each test image once by a whole number from 0 to 5"):
        read_split(stored(tmp_path, test=test))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"rule": "x"}', '{"rule": 1, "images": "many"}'])
def test_a_file_that_is_no_index_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"split.json' is not an index file .*rule, images, images_sha256 and test"):
        read_split(path)


def test_a_missing_index_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no index file .*gone.json"):
        read_split(tmp_path / "gone.json")


def test_names_in_another_order_or_joined_otherwise_have_another_digest() -> None:
    digests = {names_sha256(names) for names in (["ab", "c"], ["a", "bc"], ["c", "ab"], ["abc"])}
    assert len(digests) == 4
    assert names_sha256(["ab", "c"]) == hashlib.sha256(b"ab\0c\0").hexdigest()
    assert names_sha256(["d\udcffg"]) == hashlib.sha256(b"d\xffg\0").hexdigest()


def test_an_empty_split_is_written_as_plain_numbers() -> None:
    cut = TrainTestSplit("none", 3, "ab", np.zeros(0, dtype=np.int64))
    assert json.loads(json.dumps(split_content(cut)))["test"] == []


def test_a_long_note_names_the_first_and_counts_the_rest() -> None:
    (note,) = note_on_empty([f"c{i}" for i in range(23)])
    assert note.startswith("23 classes without images are left out: c0, c1, ")
    assert note.endswith("c19 and 3 more")


class Forbidden:
    """A test half that must not be opened."""

    @property
    def labels(self) -> NDArray[np.int64]:
        raise AssertionError("the test labels were read")

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:  # noqa: ARG002
        raise AssertionError("test images were read")


def numbered(labels: NDArray[np.int64]) -> Dataset:
    """Training images whose first pixel is their number."""
    images = np.zeros((len(labels), 1, 1, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    names = tuple(str(i) for i in range(labels.max() + 1))
    return Dataset("numbered", names, ArraySplit(images, labels), Forbidden())


def image_numbers(dataset: Dataset) -> tuple[list[int], list[int]]:
    """Numbers of the images in both splits."""
    train, test = (half.load(np.arange(len(half.labels))).images for half in (dataset.train, dataset.test))
    return [int(image[0, 0, 0]) for image in train], [int(image[0, 0, 0]) for image in test]


@given(st.lists(st.integers(2, 40), min_size=1, max_size=5))
def test_splits_are_disjoint_fifths_of_every_class(sizes: list[int]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    carved = development(numbered(labels))
    learnt, asked = image_numbers(carved)
    assert not set(learnt) & set(asked)
    assert carved.train.labels.tolist() == labels[learnt].tolist()
    assert carved.test.labels.tolist() == labels[asked].tolist()
    for label, size in enumerate(sizes):
        assert (labels[learnt] == label).sum() == (labels[asked] == label).sum() == max(1, size // 5)


def test_split_is_the_same_every_time_and_says_what_it_is() -> None:
    labels = np.arange(60) % 3
    one, other = development(numbered(labels)), development(numbered(labels))
    assert image_numbers(one) == image_numbers(other)
    assert "12 training images to learn and 12 others to test" in one.notes[-1]


def test_images_are_drawn_not_taken_from_the_front() -> None:
    learnt, _ = image_numbers(development(numbered(np.zeros(100, np.int64))))
    assert max(learnt) > 50


def test_class_of_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match="class 1 has one training image"):
        development(numbered(np.array([0, 0, 1])))
