"""From uint8 images of any size to the network's input, in batches on the device.

Every resize, crop and flip is one weighted sum over source rows and one over source columns. The weights are those of
an antialiased triangle (bilinear) or cubic (bicubic) filter, so that a batch with a different crop for each image is
two matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

InputRange = Literal["backbone", "unit", "symmetric"]
Augment = Literal["none", "crop_flip"]

_MOST_PIXELS = 1 << 23


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the network's input.

    The shorter side is resized to `size / crop_pct`, the centre `size` x `size` is taken, values are scaled to [0, 1]
    and then to `(x - mean) / std`.
    """

    size: int
    crop_pct: float = 1.0
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        if not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")

    def overridden(self, input_range: InputRange = "backbone", crop_pct: float | None = None) -> Preprocessing:
        """The same with a method's own choice of value range and crop."""
        ranges = {"unit": ((0.0,) * 3, (1.0,) * 3), "symmetric": ((0.5,) * 3, (0.5,) * 3)}
        mean, std = ranges.get(input_range, (self.mean, self.std))
        return replace(self, mean=mean, std=std, crop_pct=self.crop_pct if crop_pct is None else crop_pct)


def evaluation_input(pixels: list[Tensor], how: Preprocessing, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The deterministic transform: `[N, 3, size, size]`."""
    sides = torch.tensor([image.shape[-2:] for image in pixels])
    # Whole pixels of the resized image, rounded as torchvision's Resize and CenterCrop round them.
    resized = sides * math.floor(how.size / how.crop_pct) // sides.amin(1, keepdim=True)
    scale = sides.double() / resized
    boxes = torch.stack([((resized - how.size) / 2).round() * scale, how.size * scale], dim=2)
    return _resample(pixels, boxes, how, how.interpolation, device, dtype)


def augmented_input(
    pixels: list[Tensor], how: Preprocessing, device: torch.device, dtype: torch.dtype, random: torch.Generator
) -> Tensor:
    """Random resized crop (area 5 to 100 %, ratio 3/4 to 4/3, bilinear) and a flip half of the time."""
    sides = torch.tensor([image.shape[-2:] for image in pixels], dtype=torch.float64)
    boxes = _random_boxes(sides, random)
    inputs = _resample(pixels, boxes, how, "bilinear", device, dtype, crop_first=True)
    flip = (torch.rand(len(pixels), generator=random) < 0.5).to(device)
    return torch.where(flip[:, None, None, None], inputs.flip(3), inputs)


def _random_boxes(sides: Tensor, random: torch.Generator, tries: int = 10) -> Tensor:
    """Boxes `[N, row/column, start/length]` in whole pixels; the first of `tries` draws that fits, else the centre."""
    n = len(sides)
    height, width = sides[:, :1], sides[:, 1:]
    area = height * width * torch.empty(n, tries, dtype=torch.float64).uniform_(0.05, 1.0, generator=random)
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


def _resample(
    pixels: list[Tensor],
    boxes: Tensor,
    how: Preprocessing,
    interpolation: str,
    device: torch.device,
    dtype: torch.dtype,
    crop_first: bool = False,
) -> Tensor:
    """Resamples box n of image n to `[3, size, size]`; images of one shape are done together."""
    by_shape: dict[torch.Size, list[int]] = {}
    for i, image in enumerate(pixels):
        by_shape.setdefault(image.shape, []).append(i)
    out = torch.empty(len(pixels), 3, how.size, how.size, device=device, dtype=dtype)
    mean, std = (torch.tensor(v, device=device, dtype=dtype).view(3, 1, 1) for v in (how.mean, how.std))
    for shape, rows in _bounded(by_shape):
        batch = torch.stack([pixels[i] for i in rows]).to(device).to(dtype).div_(255)  # bytes travel, not floats
        place = boxes[rows]
        weights = [
            filter_weights(place[:, axis], shape[axis + 1], how.size, interpolation, crop_first).to(device, dtype)
            for axis in (0, 1)
        ]
        # Rows first, then columns: [N, 1, S, H] @ [N, 3, H, W] @ [N, 1, W, S].
        resized = weights[0].unsqueeze(1) @ batch @ weights[1].transpose(1, 2).unsqueeze(1)
        out[rows] = (resized.clamp(0, 1) - mean) / std  # a cubic filter overshoots
    return out


def _bounded(by_shape: dict[torch.Size, list[int]]) -> Iterator[tuple[torch.Size, list[int]]]:
    """The same groups, cut so that one is not much above `_MOST_PIXELS`: large photographs go one by one."""
    for shape, rows in by_shape.items():
        most = max(1, _MOST_PIXELS // (shape[1] * shape[2]))
        for start in range(0, len(rows), most):
            yield shape, rows[start : start + most]


def filter_weights(boxes: Tensor, source: int, size: int, interpolation: str, crop_first: bool) -> Tensor:
    """Weights `[N, size, source]` that resample `boxes[n] = (start, length)` of a line of `source` pixels.

    With `crop_first`, pixels outside the box do not count; otherwise the filter may look beyond its edges.
    """
    start, length = boxes[:, :1], boxes[:, 1:]
    scale = length / size
    stretch = scale.clamp(min=1.0)
    centre = start + (torch.arange(size, dtype=torch.float64) + 0.5) * scale
    pixel = torch.arange(source, dtype=torch.float64) + 0.5
    distance = ((pixel - centre.unsqueeze(2)) / stretch.unsqueeze(2)).abs()
    weights = _KERNELS[interpolation](distance)
    if crop_first:
        inside = (pixel > start) & (pixel < start + length)
        weights = weights * inside.unsqueeze(1)
    return weights / weights.sum(2, keepdim=True)


def _triangle(x: Tensor) -> Tensor:
    return (1 - x).clamp(min=0)


def _cubic(x: Tensor, a: float = -0.5) -> Tensor:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


_KERNELS = {"bilinear": _triangle, "bicubic": _cubic}
