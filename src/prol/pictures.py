"""Converts PIL images to RGB arrays; the same conversion for files of data sets and for images that a user passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image


def rgb_array(image: Image.Image) -> NDArray[np.uint8]:
    """uint8 RGB `[H, W, 3]`, upright, whatever the image's mode; transparent pixels become white."""
    from PIL import Image

    image = _upright(image)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow would clip at 255 instead of scaling
        return np.repeat((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8)[..., None], 3, axis=-1)
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layered.size, "white"), layered)
    return np.array(image.convert("RGB"))


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # broken metadata does not make the pixels unreadable
        return image
