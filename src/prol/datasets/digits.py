"""Handwritten digits: 1,797 real images of 8 x 8 pixels, shipped with the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prol.datasets.base import ArraySplit, Dataset
from prol.datasets.shipped import read_shipped

LICENCE = (
    "CC BY 4.0. E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, "
    "UCI Machine Learning Repository, https://doi.org/10.24432/C50P49"
)
_INK_LEVELS = 16


def digits(seed: int = 0, data: str | Path | None = None) -> Dataset:
    """The ten digits written by 13 people: 1,438 images to learn from, 359 to test on.

    Parameters
    ----------
    seed
        Has no effect: the cut into train and test is shipped, so that accuracies can be compared.
    data
        Must be None: the images are built in.

    References
    ----------
    E. Alpaydin, C. Kaynak (1998). Cascading classifiers. Kybernetika 34(4), 369-374.

    >>> data = digits()
    >>> len(data.train.labels), len(data.test.labels), data.class_names[:3]
    (1438, 359, ('0', '1', '2'))
    >>> data.train.load([0]).images[0].shape
    (8, 8, 3)
    """
    del seed
    arrays = read_shipped("digits", data)
    grey = (arrays["images"].astype(np.uint16) * 255 // _INK_LEVELS).astype(np.uint8)
    images = np.repeat(grey[..., None], 3, axis=-1)
    labels, test = arrays["labels"].astype(np.int64), arrays["test"]
    return Dataset(
        name="digits",
        class_names=tuple(str(digit) for digit in range(10)),
        train=ArraySplit(images[~test], labels[~test]),
        test=ArraySplit(images[test], labels[test]),
        tasks=5,
        licence=LICENCE,
    )
