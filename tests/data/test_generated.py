from __future__ import annotations

import numpy as np
import pytest

from prol.data.builtin import TEST_SIZES, TRAIN_SIZES, generated


@pytest.mark.parametrize("classes", [200, 20])
def test_ten_tasks_of_equally_many_classes_have_the_sizes_of_imagenet_r(classes: int) -> None:
    data = generated(classes=classes)
    for split, sizes in ((data.train, TRAIN_SIZES), (data.test, TEST_SIZES)):
        assert np.bincount(split.labels // (classes // 10)).tolist() == list(sizes)
        assert len(np.unique(split.labels)) == classes
        for task in range(10):
            counts = np.bincount(split.labels)[task * classes // 10 : (task + 1) * classes // 10]
            assert counts.max() - counts.min() <= 1


def test_an_image_is_the_same_whenever_and_with_whom_it_is_requested() -> None:
    one, again = generated(side=9).train.load([5, 70, 5]), generated(side=9).train.load([70])
    assert [image.shape for image in one.images] == [(9, 9, 3)] * 3
    assert one.images[0].dtype == np.uint8
    assert np.array_equal(one.images[1], again.images[0])
    assert np.array_equal(one.images[0], one.images[2])
    assert not np.array_equal(one.images[0], one.images[1])
    assert not np.array_equal(generated(side=9).test.load([5]).images[0], one.images[0])
    assert not np.array_equal(generated(side=9, seed=1).train.load([5]).images[0], one.images[0])


def test_test_images_may_be_fewer() -> None:
    assert np.bincount(generated(classes=30, test_per_class=2).test.labels).tolist() == [2] * 30


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"data": "/tmp"}, "takes no data"),
        ({"classes": 9}, "classes must be at least 10"),
        ({"side": 0}, "side must be at least 1"),
        ({"test_per_class": 0}, "test_per_class must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        generated(**options)
