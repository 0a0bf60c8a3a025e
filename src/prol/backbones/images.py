"""Reading images as users pass them: arrays, tensors, PIL images or files, of one or many sizes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.pictures import require_sides, rgb_array


def read_images(images: Any) -> Pixels:
    """Validated images, which may share memory with what was passed.

    Nothing is copied here: an image that is stored beyond the call must be copied.

    Accepts a batch `[N, H, W, C]`, `[N, C, H, W]` or `[N, H, W]` (array or tensor), or a list of single images (arrays,
    tensors, PIL images, paths of files). C may be 1 (grey), 3, or 4 (alpha is dropped). Where both readings of an axis
    order are possible, arrays are taken as channels last and tensors as channels first.

    >>> [tuple(image.shape) for image in read_images(np.zeros((2, 8, 6, 3), dtype=np.uint8))]
    [(3, 8, 6), (3, 8, 6)]
    """
    if isinstance(images, np.ndarray | Tensor):
        batch = _as_tensor(images)
        if batch.ndim not in (3, 4) or (batch.ndim == 3 and batch.shape[-1] in (3, 4)):
            raise ValueError(
                f"images must be a batch [N, H, W, C], [N, C, H, W] or grey [N, H, W], got shape {tuple(batch.shape)}; "
                "a single image goes in a list: [image]"
            )
        return _to_rgb(batch, batch.ndim == 3, channels_last=isinstance(images, np.ndarray))
    if isinstance(images, list | tuple):
        return [_read_one(image) for image in images]
    if hasattr(images, "convert"):
        raise ValueError("images must be a sequence; a single PIL image goes in a list: [image]")
    if isinstance(images, str | os.PathLike):
        raise ValueError(
            f"images must be a sequence, got {str(images)!r}: a single file goes in a list, [{str(images)!r}]"
        )
    raise ValueError(f"images must be uint8 arrays, uint8 tensors, PIL images or paths, got {type(images).__name__}")


def _read_one(image: Any) -> Tensor:
    if hasattr(image, "convert"):
        return _to_rgb(torch.from_numpy(rgb_array(image)), grey=False, channels_last=True)
    if isinstance(image, np.ndarray | Tensor):
        tensor = _as_tensor(image)
        if tensor.ndim not in (2, 3):
            raise ValueError(f"an image must be [H, W, 3], [3, H, W] or [H, W], got shape {tuple(tensor.shape)}")
        return _to_rgb(tensor, tensor.ndim == 2, channels_last=isinstance(image, np.ndarray))
    if isinstance(image, str | os.PathLike):
        return _read_file(Path(image))
    raise ValueError(
        f"an image must be a uint8 array, a uint8 tensor, a PIL image or a path, got {type(image).__name__}"
    )


def _read_file(path: Path) -> Tensor:
    from prol.data.decoding import decode_all

    path = path.expanduser()
    if not path.exists():
        raise ValueError(f"there is no image {str(path)!r}")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder, and an image is needed: give the files in it")
    loaded = decode_all([0], lambda _: path, lambda _: str(path))
    for bad in loaded.unreadable:
        raise ValueError(f"the image {bad.path!r} cannot be read: {bad.reason}")
    return _to_rgb(torch.from_numpy(loaded.images[0]), grey=False, channels_last=True)


def _as_tensor(values: np.ndarray[Any, Any] | Tensor) -> Tensor:
    kind = str(values.dtype).removeprefix("torch.")
    if kind != "uint8":
        nan = "float" in kind and bool((values.isnan() if isinstance(values, Tensor) else np.isnan(values)).any())
        advice = "convert them with (images * 255).round() to uint8" if "float" in kind else "convert them to uint8"
        raise ValueError(f"images must be uint8 with values 0 to 255, got {kind}{' with NaN' if nan else ''}; {advice}")
    if isinstance(values, Tensor):
        return values.detach()
    plain = values.flags.writeable and all(stride >= 0 for stride in values.strides)  # torch wants no other arrays
    return torch.from_numpy(values if plain else values.copy())


def _to_rgb(images: Tensor, grey: bool, channels_last: bool) -> Tensor:
    """`[..., 3, H, W]` from one image or a batch, whose channels come last, or first, or are missing."""
    if grey:
        images = images.unsqueeze(-3)
    else:
        shape = images.shape[-3:]
        last, first = shape[-1] in (1, 3, 4), shape[0] in (1, 3, 4)
        if not last and not first:
            raise ValueError(f"an image needs 1, 3 or 4 channels, got shape {tuple(shape)}")
        if last and (channels_last or not first):
            images = images.movedim(-1, -3)
    if 0 in images.shape[-3:]:
        raise ValueError(f"an image must not be empty, got shape {tuple(images.shape[-3:])}")
    require_sides(images.shape[-2], images.shape[-1])
    if images.shape[-3] == 1:
        return images.expand(*images.shape[:-3], 3, -1, -1)
    return images[..., :3, :, :]
