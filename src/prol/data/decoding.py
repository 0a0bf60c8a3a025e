"""Decodes images of any format into upright RGB pixels.

An image whose shorter side is 2048 or more is reduced while it is decoded, by the largest whole factor that leaves the
shorter side at `SHORT_SIDE` or above. Every other image has exactly the pixels that Pillow gives. Plain JPEGs are
decoded by torchvision, in less time: Pillow stores four bytes per pixel and copies them twice, torchvision writes three
bytes, in place.
"""

from __future__ import annotations

import io
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import BmpImagePlugin, GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin
from PIL.ImageFile import ImageFile

from prol.data.base import Loaded, Unreadable
from prol.files import UnsafeFile, open_regular
from prol.pictures import require_sides, rgb_array

SHORT_SIDE = 1024

_JPEG = b"\xff\xd8\xff"
_FORMATS: tuple[tuple[bytes, type[ImageFile]], ...] = (
    (_JPEG, JpegImagePlugin.JpegImageFile),
    (b"\x89PNG\r\n\x1a\n", PngImagePlugin.PngImageFile),
    (b"RIFF", WebPImagePlugin.WebPImageFile),
    (b"GIF8", GifImagePlugin.GifImageFile),
    (b"BM", BmpImagePlugin.BmpImageFile),
)
_ORIENTATION = 0x0112
_one_at_a_time = threading.Lock()

# Of JPEGs that torchvision may decode.
_SCAN = 0xDA
_FRAMES = frozenset((0xC0, 0xC1, 0xC2))  # baseline, extended and progressive, all in Huffman codes
# Tables, comments and metadata, except 0xE1 (Exif or XMP may rotate the image) and 0xEE (Adobe may store CMYK).
_HARMLESS = frozenset((0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0))) - {0xE1, 0xEE}


def decode(source: Path | bytes | memoryview) -> NDArray[np.uint8]:
    """An encoded image as uint8 RGB `[H, W, 3]`, upright, whatever its mode; transparent pixels become white.

    Args:
        source: a file, or the bytes of one. What cannot be decoded raises; images of more pixels than twice Pillow's
            `MAX_IMAGE_PIXELS`, and of extreme shapes (`prol.pictures`), are refused before any memory is allocated.

    >>> file = io.BytesIO()
    >>> Image.new("L", (9, 7), 200).save(file, "PNG")
    >>> decode(file.getvalue()).shape
    (7, 9, 3)
    """
    if isinstance(source, Path):
        with open_regular(source, follow=True) as file:
            return _decode(file)
    return _decode(io.BytesIO(source))


def decode_all(
    indices: Sequence[int] | NDArray[np.int64],
    source: Callable[[int], Path | bytes | memoryview | str],
    name: Callable[[int], str],
) -> Loaded:
    """Decodes images one after another; those that cannot be read are listed with the reason.

    Args:
        source: the file or the bytes of an image, or a text that says why there is none.
        name: how an image is named where it cannot be read.
    """
    images: list[NDArray[np.uint8]] = []
    read: list[int] = []
    unreadable: list[Unreadable] = []
    for index in np.asarray(indices, dtype=np.int64).tolist():
        encoded = source(index)
        if isinstance(encoded, str):
            unreadable.append(Unreadable(index, name(index), encoded))
            continue
        try:
            images.append(decode(encoded))
        except Exception as error:
            # Damaged files make decoders raise almost anything; one bad image must not end a run.
            unreadable.append(Unreadable(index, name(index), _reason(encoded, error)))
        else:
            read.append(index)
    return Loaded(images, np.array(read, dtype=np.int64), unreadable)


def _decode(file: IO[bytes]) -> NDArray[np.uint8]:
    head = file.read(16)
    file.seek(0)
    # torch is loaded in every run; inspecting a data set alone should not take the seconds of importing it.
    if head.startswith(_JPEG) and "torch" in sys.modules:
        data = file.read()
        file.seek(0)
        size = plain_size(data)
        if size is not None and min(size) < 2 * SHORT_SIDE:
            _require_size(*size)
            pixels = decode_plain_jpeg(data)
            if pixels is not None:
                return pixels
    with _open(file, head) as image:
        _require_size(*image.size)
        is_huge = Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS
        with _without_warnings() if is_huge else nullcontext():
            return _rgb(image)


def _rgb(image: Image.Image) -> NDArray[np.uint8]:
    factor = min(image.size) // SHORT_SIDE
    if factor > 1:
        image.draft(None, (image.width // factor, image.height // factor))  # a JPEG is decoded at a smaller scale
    image.load()
    factor = min(image.size) // SHORT_SIDE
    whole = _reduced(image, factor) if factor > 1 else image
    if whole.mode == "RGB" and "transparency" not in whole.info and _is_upright(whole):
        return np.array(whole)
    return rgb_array(whole)


def _open(file: IO[bytes], head: bytes) -> Image.Image:
    """The image with its header read; common formats by their class, because `Image.open` warns of large images."""
    for start, kind in _FORMATS:
        if head.startswith(start):
            try:
                return kind(file)
            except Image.DecompressionBombError:
                raise
            except Exception:  # another format after all, or damaged: Pillow decides
                file.seek(0)
    with _without_warnings():
        return Image.open(file)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses warnings, in one thread at a time, which also prevents several huge images in memory at once."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _require_size(width: int, height: int) -> None:
    require_sides(height, width)
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > 2 * limit:
        raise Image.DecompressionBombError(f"{width} x {height}: {_too_large(width * height)}")


def _too_large(pixels: int) -> str:
    most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
    return f"{pixels / 1e6:.0f} megapixels, at most {most / 1e6:.0f} are read"


def _reduced(image: Image.Image, factor: int) -> Image.Image:
    """Means of squares of pixels; palettes and single bits have none, so they are converted first."""
    if image.mode.startswith("I"):
        image = image.convert("I")
    elif image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    return image.reduce(factor)


def _is_upright(image: Image.Image) -> bool:
    try:
        return bool(image.getexif().get(_ORIENTATION, 1) == 1)
    except Exception:  # broken metadata does not make the pixels unreadable
        return False


def _reason(source: Path | bytes | memoryview, error: Exception) -> str:
    if isinstance(source, Path):
        if isinstance(error, UnsafeFile):
            return "it is no regular file"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return "the file is gone"
        with suppress(OSError):  # a path from a parquet file may be one that the system refuses
            if source.stat().st_size == 0:
                return "the file is empty"
    elif not len(source):
        return "there is no image"
    # Pillow names the file object and the system the path, which is reported separately.
    text = re.sub(r"<_io\.[^>]*>", "", str(error).replace(f": {str(source)!r}", ""))
    text = re.sub(r"^Image size \((\d+) pixels\).*", lambda size: _too_large(int(size[1])), text)  # Pillow's refusal
    return f"{' '.join(text.split()) or 'cannot be decoded'} ({type(error).__name__})"


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
    """A JPEG that has a `plain_size` as uint8 RGB `[H, W, 3]`, or None if Pillow must decode it."""
    decoder = _decoder()
    try:
        return None if decoder is None else decoder(data)
    except RuntimeError:  # a damaged file: the error is to be Pillow's
        return None


@cache
def _decoder() -> Callable[[bytes], NDArray[np.uint8]] | None:
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
