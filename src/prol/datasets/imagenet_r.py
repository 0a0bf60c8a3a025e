"""ImageNet-R: paintings, sketches, toys and other renditions of two hundred ImageNet classes."""

from __future__ import annotations

from pathlib import Path

from prol.datasets.base import Dataset
from prol.datasets.copies import Published
from prol.datasets.finding import Source
from prol.datasets.imagenet_variants import open_variant

SOURCE = Source(
    name="imagenet_r",
    folder="imagenet-r",
    address="https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar#md5=a61312130a589d0ca1a8fca1f2bd3337",
)
PUBLISHED = Published(
    classes=200,
    images=30_000,
    images_per_task=(3231, 3606, 2175, 2933, 3519, 2770, 2842, 2277, 3110, 3537),
)
LICENCE = (
    "The authors' repository is under the MIT licence; the images belong to their owners. D. Hendrycks et al. (2021), "
    "https://github.com/hendrycks/imagenet-r"
)


def imagenet_r(
    data: str | Path | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    address: str | None = None,
    split: str | None = None,
) -> Dataset:
    """Art, cartoons, toys and other renditions of two hundred ImageNet classes: 30,000 images, a fifth to test on.

    There are no published halves. The paper draws the test images from all images together, once for all runs.

    Parameters
    ----------
    data
        The folder `imagenet-r`, with class folders as published or already cut into `train/` and `test/`, or parquet
        files; or the folder around one of them; or the official archive. None looks in `$PROL_DATA` and in the cache
        folder, then downloads.
    seed
        Draws the test images.
    test_share
        Which part of all images is tested on.
    address
        Download from here instead of the official place; the checksum is the official one unless it ends in
        `#md5=...`.
    split
        An index file of an earlier run (`split.json`): its cut is taken in place of drawing one.

    References
    ----------
    D. Hendrycks et al. (2021). The many faces of robustness: a critical analysis of out-of-distribution generalization.
    ICCV.
    """
    return open_variant(
        SOURCE, PUBLISHED, LICENCE, data=data, seed=seed, test_share=test_share, address=address, split=split
    )
