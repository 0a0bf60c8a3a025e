"""A PIL image as plain RGB, the same wherever it comes from: a file of a data set, or a user's hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image


def rgb_array(image: Image.Image) -> NDArray[np.uint8]:
    """uint8 RGB `[H, W, 3]`, upright, whatever the image's mode; what is transparent becomes white."""
    from PIL import Image

    image = _upright(image)
    if image.mode.startswith("I"):  # 16 bits of grey: Pillow would cut them off at 255 instead of scaling
        return np.repeat((np.clip(np.asarray(image), 0, 65535) >> 8).astype(np.uint8)[..., None], 3, axis=-1)
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layered.size, "white"), layered)
    return np.array(image.convert("RGB"))


def _upright(image: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # broken notes about the picture do not spoil the picture
        return image
