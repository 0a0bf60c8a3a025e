"""The built-in data sets."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from prol.data import Dataset, Split
from prol.data.builtin import _read_arrays, digits, glyphs


def test_all_1797_digits_are_there_and_about_a_fifth_is_for_testing() -> None:
    data = digits()
    assert (len(data.train.labels), len(data.test.labels)) == (1438, 359)
    assert data.class_names == tuple("0123456789")
    assert data.tasks == 5
    assert "CC BY 4.0" in data.licence


def test_each_digit_has_the_same_share_in_the_test_split() -> None:
    data = digits()
    train, test = np.bincount(data.train.labels), np.bincount(data.test.labels)
    assert np.all(np.abs(test / (train + test) - 0.2) < 0.01)


def test_images_are_8_by_8_grey_with_full_range() -> None:
    data = digits()
    images = np.stack(data.train.load(np.arange(len(data.train.labels))).images)
    assert images.shape == (1438, 8, 8, 3)
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 255)
    assert np.all(images[..., 0] == images[..., 1])
    assert np.all(images[..., 0] == images[..., 2])


def test_the_labels_belong_to_the_images() -> None:
    data = digits()
    train = np.stack(data.train.load(np.arange(len(data.train.labels))).images).reshape(-1, 192).astype(np.float32)
    test = np.stack(data.test.load(np.arange(len(data.test.labels))).images).reshape(-1, 192).astype(np.float32)
    means = np.stack([train[data.train.labels == digit].mean(axis=0) for digit in range(10)])
    nearest = ((test[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    assert np.mean(nearest == data.test.labels) > 0.85


def test_the_split_is_the_same_for_every_seed() -> None:
    first, other = digits(seed=0), digits(seed=1)
    assert np.array_equal(first.test.load([0, 7]).images, other.test.load([0, 7]).images)
    assert np.array_equal(first.test.labels, other.test.labels)


def test_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'digits' is built in and takes no data, got 'somewhere'.*'folder'"):
        digits(data="somewhere")


@pytest.fixture(scope="module")
def data() -> Dataset:
    return glyphs()


@pytest.fixture(scope="module")
def masks() -> NDArray[np.uint8]:
    return _read_arrays("glyphs", None)["masks"]


def pixels(split: Split) -> NDArray[np.uint8]:
    return np.stack(split.load(np.arange(len(split.labels))).images)


def test_a_hundred_different_characters_have_25_train_and_10_test_images_each(data: Dataset) -> None:
    assert len(set(data.class_names)) == len(data.class_names) == 100
    assert np.bincount(data.train.labels).tolist() == [25] * 100
    assert np.bincount(data.test.labels).tolist() == [10] * 100
    assert data.tasks == 10


def test_images_are_48_by_48_in_colour(data: Dataset) -> None:
    images = pixels(data.train)
    assert images.shape == (2500, 48, 48, 3)
    assert images.dtype == np.uint8
    assert np.any(images[..., 0] != images[..., 1])


def test_a_seed_gives_the_same_images_on_every_machine(data: Dataset) -> None:
    digest = hashlib.sha256(pixels(data.train).tobytes() + pixels(data.test).tobytes()).hexdigest()
    assert digest == "d881f8f2523a568e2dfe622dc7702451000d9363937da6ad0bf5ed8fb6c0b473"


def test_another_seed_gives_other_images_of_the_same_classes(data: Dataset) -> None:
    other = glyphs(seed=1)
    assert other.class_names == data.class_names
    assert not np.any(np.all(pixels(other.test) == pixels(data.test), axis=(1, 2, 3)))


def test_no_test_image_is_also_a_train_image(data: Dataset) -> None:
    train = {image.tobytes() for image in pixels(data.train)}
    assert len(train) == 2500
    assert train.isdisjoint(image.tobytes() for image in pixels(data.test))


def test_no_two_characters_look_alike_in_any_font(masks: NDArray[np.uint8]) -> None:
    count, fonts = masks.shape[:2]
    flat = masks.reshape(count * fonts, -1).astype(np.float32) / 255
    shared = flat @ flat.T
    ink = np.sum(flat**2, axis=1)
    overlap = shared / (ink[:, None] + ink[None, :] - shared)
    owner = np.repeat(np.arange(count), fonts)
    overlap[owner[:, None] == owner[None, :]] = 0
    assert overlap.max() < 0.9


def test_every_mask_has_ink_inside_an_empty_margin(masks: NDArray[np.uint8]) -> None:
    assert np.all(masks.max(axis=(2, 3)) > 200)
    assert not masks[:, :, [0, -1], :].any()
    assert not masks[:, :, :, [0, -1]].any()


def test_characters_stand_out_from_their_background(data: Dataset) -> None:
    brightness = pixels(data.train) @ np.array([0.299, 0.587, 0.114])
    spread = np.percentile(brightness, 99, axis=(1, 2)) - np.percentile(brightness, 1, axis=(1, 2))
    assert spread.min() > 50


def test_a_path_and_a_negative_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="'glyphs' is built in and takes no data"):
        glyphs(data="somewhere")
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        glyphs(seed=-1)
