from __future__ import annotations

import numpy as np
import pytest

from prol.data.builtin import digits


def test_all_1797_digits_are_there_and_about_a_fifth_is_for_testing() -> None:
    data = digits()
    assert (len(data.train.labels), len(data.test.labels)) == (1438, 359)
    assert data.class_names == tuple("0123456789")
    assert data.tasks == 5
    assert "CC BY 4.0" in data.licence


def test_each_digit_has_the_same_share_in_the_test_half() -> None:
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


def test_the_cut_into_halves_is_the_same_for_every_seed() -> None:
    first, other = digits(seed=0), digits(seed=1)
    assert np.array_equal(first.test.load([0, 7]).images, other.test.load([0, 7]).images)
    assert np.array_equal(first.test.labels, other.test.labels)


def test_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'digits' is built in and takes no data, got 'somewhere'.*'folder'"):
        digits(data="somewhere")
