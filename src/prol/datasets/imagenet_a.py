"""ImageNet-A: photographs of two hundred ImageNet classes that ResNet-50 gets wrong."""

from __future__ import annotations

from pathlib import Path

from prol.datasets.base import Dataset
from prol.datasets.copies import Published
from prol.datasets.finding import Source
from prol.datasets.imagenet_variants import open_variant

SOURCE = Source(
    name="imagenet_a",
    folder="imagenet-a",
    address="https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar#md5=c3e55429088dc681f30d81f4726b6595",
)
PUBLISHED = Published(classes=200, images=7_500)
LICENCE = (
    "The authors' repository is under the MIT licence; the images belong to their owners. D. Hendrycks et al. (2021), "
    "https://github.com/hendrycks/natural-adv-examples"
)


def imagenet_a(
    data: str | Path | None = None,
    seed: int = 0,
    test_share: float = 0.5,
    address: str | None = None,
    split: str | None = None,
) -> Dataset:
    """Photographs of two hundred ImageNet classes that mislead trained networks: 7,500 images, half to test on.

    There are no published halves. The paper draws the test images from all images together, once for all runs; other
    papers test on a fifth (`test_share=0.2`).

    Parameters
    ----------
    data
        The folder `imagenet-a`, with class folders as published or already cut into `train/` and `test/`, or parquet
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
    D. Hendrycks, K. Zhao, S. Basart, J. Steinhardt, D. Song (2021). Natural adversarial examples. CVPR.
    """
    return open_variant(
        SOURCE, PUBLISHED, LICENCE, data=data, seed=seed, test_share=test_share, address=address, split=split
    )
