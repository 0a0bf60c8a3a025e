"""Images in batches of a few sizes: a GPU is fast at shapes it has met before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from prol.backbones import Pixels

SMALL_BATCH = 16
"""Images up to which a batch is never filled up."""


def whole_batch(count: int, most: int) -> int:
    """The batch size at which `count` images, at most `most`, pass through a GPU: few sizes, each compiled once.

    Small batches, for which somebody may be waiting, pass as they are.

    >>> [whole_batch(count, most=256) for count in (1, 10, 16, 17, 50, 200)]
    [1, 10, 16, 32, 64, 256]
    """
    return count if count <= SMALL_BATCH else min(most, 1 << (count - 1).bit_length())


def batches(pixels: Pixels, encoded: Tensor | None, size: int, filled: bool) -> Iterator[tuple[Pixels, Tensor | None]]:
    """Images and their encodings, if known, `size` at a time; `filled` repeats the last one up to a usual batch size.

    `pixels` may be empty where encodings are given.
    """
    count = len(pixels) if encoded is None else len(encoded)
    for start in range(0, count, size):
        left = count - start
        missing = max(0, (size if count > size else whole_batch(left, size)) - left) if filled else 0
        part = pixels[start : start + size]
        images = _filled(part, missing) if isinstance(part, Tensor) else part + part[-1:] * missing
        yield images, None if encoded is None else _filled(encoded[start : start + size], missing)


def _filled(rows: Tensor, missing: int) -> Tensor:
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing and len(rows) else rows
