"""From the bytes that strangers send to pixels, with everything looked up before memory is taken."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from prol.data.decoding import decode
from prol.serve.budget import Share
from prol.serve.forms import Form, read_form
from prol.serve.refusals import Refusal
from prol.serve.settings import Limits

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")

Picture = NDArray[np.uint8]

_OTHER_PARTS = 16


def read_images(body: bytes, content_type: str | None, limits: Limits, fields: Sequence[str] = ()) -> Form:
    """A form with at least one file named `images`, at most as many as allowed, and no unknown fields."""
    form = read_form(body, content_type, most_parts=2 * limits.images + _OTHER_PARTS)
    for name in (*form.files, *form.texts):
        if name not in ("images", *fields):
            known = ", ".join(("images", *fields))
            raise Refusal(422, "unknown_field", f"The form has a field that is not known: these are: {known}.")
    if "images" in form.texts:
        raise Refusal(422, "not_a_file", "A field images is text: send the images as files, with a file name.")
    if any(name in form.files for name in fields):
        raise Refusal(422, "not_a_text", f"Only images are files: send {' and '.join(fields)} as plain texts.")
    count = len(form.files.get("images", []))
    if not count:
        raise Refusal(422, "no_images", "There is no image: send at least one file in the field images.")
    if count > limits.images:
        message = f"{count} images in one request: send at most {limits.images}."
        raise Refusal(422, "too_many_images", message)
    return form


def decode_images(files: Sequence[bytes], limits: Limits, share: Share) -> list[Picture]:
    """uint8 RGB `[H, W, 3]` of each file; a file that is no good is named by its position, counted from 1.

    All headers are read before the first image is decoded, and the memory is taken from the request's share before.
    """
    pixels = sum(_pixels(data, position, limits.pixels) for position, data in enumerate(files, 1))
    if pixels > limits.request_pixels:
        message = f"The images have {pixels:,} pixels together: send at most {limits.request_pixels:,} a request."
        raise Refusal(422, "too_many_pixels", message)
    share.take(3 * pixels)
    return [decode_image(data, position) for position, data in enumerate(files, 1)]


def decode_image(data: bytes, position: int) -> Picture:
    try:
        return decode(data)
    except Exception:  # damaged files make decoders raise almost anything
        raise _unreadable(position, "it is damaged or cut off") from None


def _pixels(data: bytes, position: int, most: int) -> int:
    """Width times height as the header has it."""
    if not data:
        raise _unreadable(position, "it is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        width = height = most + 1
    except Exception:  # as above
        raise _unreadable(position, f"it is none of {', '.join(FORMATS)}, or its header is damaged") from None
    if width * height > most:
        message = f"Image {position} has too many pixels: send at most {most:,} an image."
        raise Refusal(422, "too_many_pixels", message)
    return width * height


def _unreadable(position: int, why: str) -> Refusal:
    return Refusal(422, "unreadable_image", f"Image {position} cannot be read: {why}. Nothing was taken in.")
