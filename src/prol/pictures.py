"""PIL images as RGB arrays, and the shapes an image may have; for files of data sets and images that a user passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

MAX_SIDE = 65_535
"""The longest side of an image, in pixels: that of the largest JPEG."""
MAX_RATIO = 1000
"""How many times longer than the other a side may be: a network sees the central square alone."""


def require_sides(height: int, width: int) -> None:
    """Refuses images of extreme shapes.

    >>> require_sides(1, 2_000_000)
    Traceback (most recent call last):
    ValueError: an image of 2000000 x 1 pixels is too long: a side may have at most 65535 pixels, crop or resize it
    >>> require_sides(10, 10_001)
    Traceback (most recent call last):
    ValueError: an image of 10001 x 10 pixels is too narrow: one side may be at most 1000 times the other, crop it
    """
    size = f"an image of {width} x {height} pixels"
    if max(height, width) > MAX_SIDE:
        raise ValueError(f"{size} is too long: a side may have at most {MAX_SIDE} pixels, crop or resize it")
    if max(height, width) > MAX_RATIO * min(height, width):
        raise ValueError(f"{size} is too narrow: one side may be at most {MAX_RATIO} times the other, crop it")


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
