"""From the host to the device without waiting: the copy is queued behind what the device is doing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device. What it holds now is sent to a GPU, whatever becomes of it afterwards."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


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
    """Where a batch is put together: in memory from which a GPU copies by itself."""
    return torch.empty(
        shape, dtype=like.dtype, device=like.device, pin_memory=device.type == "cuda" and not like.is_cuda
    )
