"""Turned versions of square images, each a class of its own beside the image's class."""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 16
"""Four turns of the whole image, for each of four ways to turn its halves or not."""


def versions(images: Tensor, count: int = MOST) -> Tensor:
    """The first `count` versions of `[N, 3, S, S]`, one after the other: `[count * N, 3, S, S]`.

    Version r turns the upper half upside down where r // 4 is 1 or 3, the lower half where it is 2 or 3, and then the
    whole image by r % 4 quarters. Version 0 is the image as it is.
    """
    middle = images.shape[2] // 2
    upper, lower = images[:, :, :middle], images[:, :, middle:]
    made = []
    for version in range(count):
        turned, quarters = divmod(version, 4)
        halves = [upper.flip((2, 3)) if turned & 1 else upper, lower.flip((2, 3)) if turned & 2 else lower]
        made.append(torch.rot90(torch.cat(halves, 2), quarters, (2, 3)))
    return torch.cat(made)


def pseudo_classes(rows: Tensor, count: int = MOST) -> Tensor:
    """One number for a class row and version, `[count * N]` in the order of `versions`; rows may be negative."""
    return (rows * count + torch.arange(count, device=rows.device).unsqueeze(1)).flatten()
