"""Images doubled by versions whose halves are mirrored."""

from __future__ import annotations

import torch
from torch import Tensor


def halves_mirrored(images: Tensor) -> Tensor:
    """`[N, 3, S, S]` with the left and the right half mirrored left to right, each in its own place."""
    middle = images.shape[-1] // 2
    return torch.cat([images[..., :middle].flip(-1), images[..., middle:].flip(-1)], -1)


def with_halves_mirrored(images: Tensor) -> Tensor:
    """`[2 N, 3, S, S]`: the images, then each of them with its halves mirrored."""
    return torch.cat([images, halves_mirrored(images)])
