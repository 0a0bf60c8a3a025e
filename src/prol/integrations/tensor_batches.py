"""Batches as continual-learning libraries pass them: images as float tensors from 0 to 1, labels as class numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prol.classes import Label


def to_uint8(images: Tensor) -> Tensor:
    """Images `[N, C, H, W]` as uint8, where floats from 0 to 1 are those of torchvision's `ToTensor`: exact for these.

    >>> to_uint8(torch.tensor([[[[0.0, 0.2, 1.0]]]])).flatten().tolist()
    [0, 51, 255]
    """
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise ValueError(f"images must be uint8, or floats from 0 to 1, got {images.dtype}")
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError(
            "images must have values from 0 to 1, as ToTensor gives them: leave out Normalize, since the backbone "
            "normalises its own input"
        )
    return (images * 255).round().to(torch.uint8)


def by_label(values: Tensor, classes: Sequence[Label], count: int, absent: float) -> Tensor:
    """Values `[N, len(classes)]` of a learner in columns `[N, count]` of class numbers; `absent` for all others.

    >>> by_label(torch.tensor([[0.7, 0.3]]), [2, 0], 4, absent=0.0).tolist()
    [[0.30000001192092896, 0.0, 0.699999988079071, 0.0]]
    """
    unknown = [name for name in classes if not isinstance(name, int) or not 0 <= name < count]
    if unknown:
        raise ValueError(f"the learner has the class {unknown[0]!r}, which is no number from 0 to {count - 1}")
    columns = torch.full((len(values), count), absent, dtype=values.dtype)
    columns[:, list(classes)] = values
    return columns
