"""Random crops: which part of each image is taken."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def random_boxes(sides: Tensor, random: torch.Generator, least_area: float = 0.05, tries: int = 10) -> Tensor:
    """Boxes `[N, row/column, start/length]` in whole pixels of images with sides `[N, 2]`.

    The area is a share of the image's between `least_area` and 1, the ratio of the sides between 3/4 and 4/3: the first
    of `tries` draws that fits, else the centre.
    """
    n = len(sides)
    height, width = sides[:, :1], sides[:, 1:]
    area = height * width * torch.empty(n, tries, dtype=torch.float64).uniform_(least_area, 1.0, generator=random)
    log_ratio = torch.empty(n, tries, dtype=torch.float64).uniform_(math.log(3 / 4), math.log(4 / 3), generator=random)
    w, h = (area * log_ratio.exp()).sqrt().round(), (area / log_ratio.exp()).sqrt().round()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(1, keepdim=True)
    central_w = torch.minimum(width, (height * 4 / 3).round())
    central_h = torch.minimum(height, (width * 4 / 3).round())
    found = fits.gather(1, first)
    length = torch.cat(
        [torch.where(found, h.gather(1, first), central_h), torch.where(found, w.gather(1, first), central_w)], 1
    )
    place = torch.rand(n, 2, generator=random, dtype=torch.float64)
    place = torch.where(found, (place * (sides - length + 1)).floor(), ((sides - length) / 2).floor())
    return torch.stack([place, length], dim=2)
