"""Resizing, cropping and mirroring of image batches on the device.

Every resize, crop and flip is one weighted sum over source rows and one over source columns. The weights are those of
an antialiased triangle (bilinear) or cubic (bicubic) filter, so that a batch with a different crop for each image is
two matrix products. Weights are dense along a side, so an elongated image is first cropped to the part that counts:
memory stays within a multiple of its pixels and of the network's input.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

ELONGATED = 8
"""Images whose sides differ by more than this factor are cropped before they are resampled."""


def resample(batch: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Weighted sums of `[N, 3, H, W]` over rows, then over columns: `[N, 3, S, S]`.

    Weights are `[N, S, H]` and `[N, S, W]`, `[1, ...]` where all images share them, None where nothing changes.
    """
    if rows is not None:
        batch = rows.unsqueeze(1) @ batch
    return batch if columns is None else batch @ columns.transpose(1, 2).unsqueeze(1)


def filter_weights(
    boxes: Tensor,
    source: int,
    size: int,
    interpolation: str,
    crop_first: bool,
    mirrored: Tensor | None = None,
    ends: Tensor | None = None,
) -> Tensor:
    """Weights `[N, size, source]` that resample `boxes[n] = (start, length)` of a line of `source` pixels.

    With `crop_first`, pixels outside the box do not count; otherwise the filter may look beyond its edges, up to
    `ends[n]` where lines end before the last pixel. Where `mirrored` `[N]`, the line comes out from its end on.
    """
    start, length = boxes[:, :1], boxes[:, 1:]
    scale = length / size
    stretch = scale.clamp(min=1.0)
    centre = start + (torch.arange(size, dtype=boxes.dtype, device=boxes.device) + 0.5) * scale
    if mirrored is not None:
        centre = torch.where(mirrored.unsqueeze(1), centre.flip(1), centre)
    pixel = torch.arange(source, dtype=boxes.dtype, device=boxes.device) + 0.5
    distance = ((pixel - centre.unsqueeze(2)) / stretch.unsqueeze(2)).abs()
    weights = _KERNELS[interpolation](distance)
    if crop_first:
        inside = (pixel > start) & (pixel < start + length)
        weights = weights * inside.unsqueeze(1)
    elif ends is not None:
        weights = weights * (pixel < ends.unsqueeze(1)).unsqueeze(1)
    return weights / weights.sum(2, keepdim=True)


def is_elongated(height: int, width: int) -> bool:
    return max(height, width) > ELONGATED * min(height, width)


def needed_part(height: int, width: int, box: Sequence[float], size: int) -> tuple[slice, slice, tuple[float, ...]]:
    """The rows and the columns of an image that count when `box` is resampled to `size`, and the box within them.

    A box is a start and a length along rows, then along columns, and nearly square. Images that are not elongated stay
    whole.
    """
    if not is_elongated(height, width):
        return slice(0, height), slice(0, width), tuple(box)
    parts, within = [], []
    for side, start, length in ((height, *box[:2]), (width, *box[2:])):
        reach = math.ceil(2 * max(1.0, length / size))  # of the cubic filter, the wider one
        low = max(0, math.floor(start) - reach)
        parts.append(slice(low, min(side, math.ceil(start + length) + reach)))
        within += [start - low, length]
    return parts[0], parts[1], tuple(within)


class WeightCache:
    """Weights by what they are for, at most `limit` bytes of them; the ones that were used last stay. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._entries: OrderedDict[Hashable, tuple[Tensor, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        made = compute()
        with self._lock:
            if key not in self._entries and _bytes(made) <= self.limit:  # another thread may have been faster
                self._entries[key] = made
                self.bytes += _bytes(made)
            while self.bytes > self.limit:
                self.bytes -= _bytes(self._entries.popitem(last=False)[1])
        return made


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _triangle(x: Tensor) -> Tensor:
    return (1 - x).clamp(min=0)


def _cubic(x: Tensor, a: float = -0.5) -> Tensor:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


_KERNELS = {"bilinear": _triangle, "bicubic": _cubic}


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
