"""From uint8 images of any size to the network's input, in batches on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from prol.backbones.acceleration import FrozenPass, fast, upload
from prol.backbones.base import PLAIN, Acceleration, Backbone, Pixels, Preprocessing, Staged
from prol.backbones.images import read_images
from prol.backbones.processor import require_threads
from prol.backbones.resampling import (
    WeightCache,
    filter_weights,
    is_elongated,
    needed_part,
    random_boxes,
    resample,
)

_MOST_PIXELS = 1 << 23
_STEP = 64
"""Sides of a canvas are multiples of this."""
_weights = WeightCache(limit=1 << 25)


class ReadsImages:
    """Reads images and prepares the network's input, for networks of all kinds."""

    def read(self, images: Any) -> Pixels:
        require_threads()
        return read_images(images)

    def inputs(self: Backbone, pixels: Pixels, how: Preprocessing, random: torch.Generator | None = None) -> Tensor:
        return render(self.stage(pixels, how, random), how, self.dtype)

    def stage(self: Backbone, pixels: Pixels, how: Preprocessing, random: torch.Generator | None = None) -> Staged:
        if random is not None:
            return stage_augmented(pixels, how, self.device, self.dtype, random)
        return stage_evaluation(pixels, how, self.device, self.dtype)

    def render(self: Backbone, staged: Staged, how: Preprocessing) -> Tensor:
        return render(staged, how, self.dtype, self.acceleration)

    def frozen_pass(self: Backbone, look: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return FrozenPass(look, self.acceleration.captured)

    def upload(self: Backbone, tensor: Tensor) -> Tensor:
        return upload(tensor, self.device)


def evaluation_input(pixels: Pixels, how: Preprocessing, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The deterministic transform: `[N, 3, size, size]`."""
    return render(stage_evaluation(pixels, how, device, dtype), how, dtype)


def stage_evaluation(pixels: Pixels, how: Preprocessing, device: torch.device, dtype: torch.dtype) -> Staged:
    """The part of the deterministic transform that needs the host; rendered images are returned as they are."""
    if isinstance(pixels, Tensor) and pixels.is_floating_point():
        return (pixels,)
    if _takes_canvases(pixels, device):
        images, boxes = [], []
        for image in pixels:
            rows, columns, box = _central_part(image.shape[1], image.shape[2], how)
            images.append(image[:, rows, columns])
            boxes.append((*box, *images[-1].shape[1:]))
        return _on_canvases(images, torch.tensor(boxes, dtype=torch.float64), how, device, dtype)
    groups, found = _groups(pixels), []
    for members in groups:
        height, width = pixels[members[0]].shape[-2:]
        rows, columns, _ = _central_part(height, width, how)
        together = _members(pixels, members)
        if isinstance(together, Tensor):
            together = together[..., rows, columns]
        else:
            together = [image[:, rows, columns] for image in together]
        batch = upload_stacked(together, device)
        found.append((batch, *_central_weights(height, width, how, device, dtype)))
    return _as_one(found, groups, how, dtype)


def stage_augmented(
    pixels: Pixels, how: Preprocessing, device: torch.device, dtype: torch.dtype, random: torch.Generator
) -> Staged:
    """The part of the random transform that needs the host: crops are drawn here, so that they are the same everywhere.

    A random resized crop (area 5 to 100 %, ratio 3/4 to 4/3, bilinear), and a flip half of the time.
    """
    sides = [pixels.shape[-2:]] * len(pixels) if isinstance(pixels, Tensor) else [image.shape[-2:] for image in pixels]
    boxes = random_boxes(torch.tensor(sides, dtype=torch.float64), random)
    mirrored = torch.rand(len(pixels), generator=random) < 0.5
    pixels, boxes = _needed_parts(pixels, boxes, how.size)
    drawn = torch.cat([boxes.flatten(1), mirrored.unsqueeze(1)], dim=1)
    if _takes_canvases(pixels, device):
        return _on_canvases(pixels, drawn, how, device, dtype)
    groups, found = _groups(pixels), []
    for members in groups:
        batch = upload_stacked(_members(pixels, members), device)
        found.append((batch, upload(drawn if len(groups) == 1 else drawn[members], device)))
    return _as_one(found, groups, how, dtype)


def render(staged: Staged, how: Preprocessing, dtype: torch.dtype, driven: Acceleration = PLAIN) -> Tensor:
    """The network's input `[N, 3, size, size]`; operations of fixed shape on the device alone."""
    if staged[0].is_floating_point():
        return staged[0]
    return fast(driven, _render)(staged, *_range(how, staged[0].device, dtype), how.size, how.interpolation)


def _render(staged: Staged, mean: Tensor, std: Tensor, size: int, interpolation: str) -> Tensor:
    """From bytes `[N, 3, H, W]`, alone where they are of the network's own size.

    Otherwise followed by weights of rows and columns; or by a start and a length along rows and along columns for each
    image, and then in training whether it is mirrored, `[N, 5]`, else where its rows and columns end, `[N, 6]`.
    """
    batch, *rest = staged
    rows, columns = None, None
    (height, width), boxes = batch.shape[-2:], rest[0] if rest else None
    if len(rest) == 2:
        rows, columns = rest
    elif boxes is not None and boxes.shape[1] == 5:
        flip = boxes[:, 4] > 0
        rows = filter_weights(boxes[:, 0:2], height, size, "bilinear", crop_first=True)
        columns = filter_weights(boxes[:, 2:4], width, size, "bilinear", crop_first=True, mirrored=flip)
    elif boxes is not None:
        rows = filter_weights(boxes[:, 0:2], height, size, interpolation, crop_first=False, ends=boxes[:, 4])
        columns = filter_weights(boxes[:, 2:4], width, size, interpolation, crop_first=False, ends=boxes[:, 5])
    rows, columns = (None if weights is None else weights.to(mean) for weights in (rows, columns))
    resized = resample(batch.contiguous().to(mean) / 255, rows, columns)
    return (resized.clamp(0, 1) - mean) / std  # a cubic filter overshoots


def _needed_parts(pixels: Pixels, boxes: Tensor, size: int) -> tuple[Pixels, Tensor]:
    """Elongated images cropped to the part that their boxes `[N, row/column, start/length]` need, and boxes there."""
    if not any(is_elongated(*image.shape[-2:]) for image in pixels):
        return pixels, boxes
    images, places = [], []
    for image, given in zip(pixels, boxes.flatten(1).tolist(), strict=True):
        rows, columns, box = needed_part(image.shape[1], image.shape[2], given, size)
        images.append(image[:, rows, columns])
        places.append(box)
    return images, torch.tensor(places, dtype=boxes.dtype).view_as(boxes)


def _central_weights(
    height: int, width: int, how: Preprocessing, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Weights `[1, size, side]` of the resized image's centre along both sides; none where it stays as it is."""
    if height == width == how.size == math.floor(how.size / how.crop_pct):
        return ()

    def compute() -> tuple[Tensor, ...]:
        rows, columns, box = _central_part(height, width, how)
        place, weights = torch.tensor(box, dtype=torch.float64), []
        for part, side in ((place[None, :2], rows), (place[None, 2:], columns)):
            found = filter_weights(part, side.stop - side.start, how.size, how.interpolation, crop_first=False)
            weights.append(found.to(device, dtype))
        return tuple(weights)

    return _weights.get((height, width, how, device, dtype), compute)


def _central_part(height: int, width: int, how: Preprocessing) -> tuple[slice, slice, tuple[float, ...]]:
    """The rows and the columns of an image that count, and the box within them that becomes the network's input."""
    return needed_part(height, width, _central_box(height, width, how), how.size)


def _central_box(height: int, width: int, how: Preprocessing) -> tuple[float, ...]:
    """Start and length, along rows and along columns, of what becomes the resized image's centre."""
    box: list[float] = []
    for side in (height, width):
        # Whole pixels of the resized image, rounded as torchvision's Resize and CenterCrop round them.
        resized = side * math.floor(how.size / how.crop_pct) // min(height, width)
        box += [round((resized - how.size) / 2) * side / resized, how.size * side / resized]
    return tuple(box)


@cache
def _range(how: Preprocessing, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Mean and deviation `[3, 1, 1]`; never freed, since captured graphs read them."""
    mean, std = (torch.tensor(values, device=device, dtype=dtype).view(3, 1, 1) for values in (how.mean, how.std))
    return mean, std


def _takes_canvases(pixels: Pixels, device: torch.device) -> bool:
    """Images of several sizes on a GPU, which is fast at few shapes and slow at many small ones."""
    return device.type == "cuda" and not isinstance(pixels, Tensor) and len({image.shape for image in pixels}) > 1


def _on_canvases(pixels: Pixels, boxes: Tensor, how: Preprocessing, device: torch.device, dtype: torch.dtype) -> Staged:
    """Each image in a corner of a canvas, all of one size where they are not too large for that."""
    groups, found = _canvases(pixels), []
    for members in groups:
        images = [pixels[i] for i in members]
        canvas = upload_on_canvas(images, *_canvas(images), device)
        found.append((canvas, upload(boxes[members[0] : members[-1] + 1], device)))
    return _as_one(found, groups, how, dtype)


def _canvases(pixels: Pixels) -> list[list[int]]:
    """Neighbours that share a canvas of bounded size."""
    groups: list[list[int]] = []
    sides = 0, 0
    for i, image in enumerate(pixels):
        alone = _canvas([image])
        height, width = max(sides[0], alone[0]), max(sides[1], alone[1])
        if groups and (len(groups[-1]) + 1) * height * width <= _MOST_PIXELS:
            groups[-1].append(i)
            sides = height, width
        else:
            groups.append([i])
            sides = alone
    return groups


def _canvas(images: Sequence[Tensor]) -> tuple[int, int]:
    height, width = (-(-max(image.shape[axis] for image in images) // _STEP) * _STEP for axis in (1, 2))
    return height, width


def _groups(pixels: Pixels) -> list[list[int]]:
    """Indices of images of one shape, which are processed together; large photographs are processed one by one."""
    by_shape: dict[torch.Size, list[int]] = {}
    if isinstance(pixels, Tensor):
        by_shape[pixels.shape[1:]] = list(range(len(pixels)))
    else:
        for i, image in enumerate(pixels):
            by_shape.setdefault(image.shape, []).append(i)
    groups = []
    for shape, members in by_shape.items():
        most = max(1, _MOST_PIXELS // (shape[1] * shape[2]))
        groups += [members[start : start + most] for start in range(0, len(members), most)]
    return groups


def _members(pixels: Pixels, members: list[int]) -> Pixels:
    return pixels if len(members) == len(pixels) else [pixels[i] for i in members]


def _as_one(found: Sequence[Staged], groups: list[list[int]], how: Preprocessing, dtype: torch.dtype) -> Staged:
    """The only group, or all of them rendered, in the images' own order."""
    if len(found) == 1:
        return found[0]
    order = torch.tensor([i for members in groups for i in members]).argsort()
    rendered = torch.cat([render(staged, how, dtype) for staged in found])
    return (rendered[upload(order, rendered.device)],)


def upload_stacked(images: Tensor | Sequence[Tensor], device: torch.device) -> Tensor:
    """Images `[3, H, W]` of one shape as one batch `[N, 3, H, W]` on the device.

    On their way to a GPU bytes are copied once on the host, in the order in which they lie there, and lie so in the
    batch too. A batch that is where it is wanted is not copied.
    """
    channels_last = images[0].stride(0) == 1
    if isinstance(images, Tensor) and (device.type != "cuda" or images.is_cuda):
        return images.to(device)
    if isinstance(images, Tensor):
        source = images.permute(0, 2, 3, 1) if channels_last else images
        batch = _staging(source.shape, source, device).copy_(source)
    else:
        views = [image.permute(1, 2, 0) for image in images] if channels_last else list(images)
        shape = torch.Size((len(views), *views[0].shape))
        batch = torch.stack(views, out=_staging(shape, views[0], device))
    batch = batch.to(device, non_blocking=device.type == "cuda")
    return batch.permute(0, 3, 1, 2) if channels_last else batch


def upload_on_canvas(images: Sequence[Tensor], height: int, width: int, device: torch.device) -> Tensor:
    """Images `[3, H, W]` of several shapes in the upper left corners of one batch `[N, 3, height, width]`."""
    canvas = _staging(torch.Size((len(images), height, width, 3)), images[0], device).zero_()
    for place, image in zip(canvas, images, strict=True):
        place[: image.shape[1], : image.shape[2]] = image.permute(1, 2, 0)
    return canvas.to(device, non_blocking=device.type == "cuda").permute(0, 3, 1, 2)


def _staging(shape: torch.Size, like: Tensor, device: torch.device) -> Tensor:
    """The buffer in which a batch is assembled: pinned memory, from which a GPU copies asynchronously."""
    return torch.empty(
        shape, dtype=like.dtype, device=like.device, pin_memory=device.type == "cuda" and not like.is_cuda
    )
