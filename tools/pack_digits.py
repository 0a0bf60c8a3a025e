"""Packs the UCI optical digits (scikit-learn's `digits.csv.gz`: 64 pixel values and the digit a row) for shipping.

    python tools/pack_digits.py digits.csv.gz src/prol/data/arrays/digits.npz

The train/test cut is drawn here once and shipped, so that every installation tests on the same images.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

TEST_SHARE = 0.2
SEED = 0


def main(source: Path, target: Path) -> None:
    rows = np.loadtxt(source, delimiter=",", dtype=np.uint8)
    images, labels = rows[:, :64].reshape(-1, 8, 8), rows[:, 64]
    random = np.random.default_rng(SEED)
    test = np.zeros(len(labels), dtype=np.bool_)
    for digit in range(10):
        of_digit = random.permutation(np.flatnonzero(labels == digit))
        test[of_digit[: round(TEST_SHARE * len(of_digit))]] = True
    np.savez_compressed(target, images=images, labels=labels, test=test)
    print(f"{target}: {np.sum(~test)} train and {np.sum(test)} test images, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
