"""From the host to the device without waiting: the copy is queued behind what the device is doing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; what it holds now is sent, whatever becomes of it afterwards."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def upload_stacked(images: Sequence[Tensor], device: torch.device) -> Tensor:
    """Images `[3, H, W]` of one shape as one batch `[N, 3, H, W]` on the device.

    Bytes are copied once on the host, in the order in which they lie there, and lie so in the batch too.
    """
    channels_last = all(image.stride(0) == 1 for image in images)
    views = [image.permute(1, 2, 0) for image in images] if channels_last else list(images)
    if device.type == "cuda" and not views[0].is_cuda:
        staged = torch.empty(len(views), *views[0].shape, dtype=views[0].dtype, pin_memory=True)
        batch = torch.stack(views, out=staged).to(device, non_blocking=True)
    else:
        batch = torch.stack(views).to(device)
    return batch.permute(0, 3, 1, 2) if channels_last else batch
