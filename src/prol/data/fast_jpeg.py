"""Decodes plain JPEGs with torchvision: exactly the pixels of Pillow, in less time.

Pillow stores four bytes per pixel and copies them twice. torchvision writes three bytes, in place.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin

Decoder = Callable[[bytes], NDArray[np.uint8]]

_SCAN = 0xDA
_FRAMES = frozenset((0xC0, 0xC1, 0xC2))  # baseline, extended and progressive, all in Huffman codes
# Tables, comments and metadata, except 0xE1 (Exif or XMP may rotate the image) and 0xEE (Adobe may store CMYK).
_HARMLESS = frozenset((0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0))) - {0xE1, 0xEE}


def plain_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a JPEG whose header declares three 8-bit colours and nothing else, else None.

    >>> file = io.BytesIO()
    >>> Image.new("RGB", (30, 20)).save(file, "JPEG")
    >>> plain_size(file.getvalue()), plain_size(b"GIF89a")
    ((30, 20), None)
    """
    at, size = 2, None
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _SCAN:
            return size
        if marker in _FRAMES:
            if data[at + 4] != 8 or data[at + 9] != 3:  # bits, colours
                return None
            size = int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        elif marker not in _HARMLESS:
            return None
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def decode_plain_jpeg(data: bytes) -> NDArray[np.uint8] | None:
    """A JPEG that has a `plain_size` as uint8 RGB `[H, W, 3]`, or None if Pillow must decode it.

    Pillow decodes if torchvision's decoder is not available, and damaged files, so that the error is Pillow's.
    """
    decoder = _decoder()
    try:
        return None if decoder is None else decoder(data)
    except RuntimeError:
        return None


@cache
def _decoder() -> Decoder | None:
    """torchvision's decoder; None if it is missing, or if its JPEG library gives other pixels than Pillow's."""
    try:
        import torch
        import torchvision.io  # noqa: F401  # registers the operator

        # Since torchvision 0.29 the function around the operator warns of its removal at every call.
        operator, rgb = torch.ops.image.decode_jpeg, 3

        def decoder(data: bytes) -> NDArray[np.uint8]:
            # A copy, because torch warns of memory that is not writable.
            encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            pixels: NDArray[np.uint8] = operator(encoded, rgb).permute(1, 2, 0).numpy()
            return pixels

        return decoder if all(np.array_equal(decoder(probe), _by_pillow(probe)) for probe in _probes()) else None
    except (ImportError, AttributeError, RuntimeError, OSError):
        return None


def _by_pillow(data: bytes) -> NDArray[np.uint8]:
    # By its class: `Image.open` would refuse the probes if the limit on pixels is tiny.
    with JpegImagePlugin.JpegImageFile(io.BytesIO(data)) as image:
        return np.asarray(image)


def _probes() -> list[bytes]:
    """Small noisy JPEGs, one for each chroma subsampling, baseline and progressive."""
    noise = np.random.default_rng(0).integers(0, 256, (37, 51, 3), dtype=np.uint8)
    probes = []
    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            file = io.BytesIO()
            Image.fromarray(noise).save(file, "JPEG", quality=85, subsampling=subsampling, progressive=progressive)
            probes.append(file.getvalue())
    return probes
