from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from prol.data import Dataset, Split
from prol.data.builtin import _read_arrays, glyphs


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
