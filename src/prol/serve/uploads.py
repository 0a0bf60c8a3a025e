"""Uploads: multipart forms are parsed in memory, images are checked before they are decoded.

No part of a form ever becomes a temporary file, and memory is reserved before it is used.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, parse_options_header

from prol.classes import Label
from prol.data.decoding import decode
from prol.pictures import require_sides
from prol.serve.errors import RequestError
from prol.serve.schemas import bad_label, text_label
from prol.serve.settings import Limits

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")

Pixels = NDArray[np.uint8]

_MAX_FIELD_BYTES = 8192
_OTHER_PARTS = 16


class MemoryBudget:
    """The memory that all requests in progress may take together, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._lock = threading.Lock()

    def take(self, amount: int) -> None:
        """Refuses with 429 what does not fit now, and with 413 what never will."""
        if amount > self.limit:
            message = (
                f"This needs {amount:,} bytes of memory, {self.limit:,} are allowed: send fewer or smaller images."
            )
            raise RequestError(413, "too_large", message)
        with self._lock:
            if self.taken + amount > self.limit:
                message = "The service has no memory left for this request: try again in a moment."
                raise RequestError(429, "busy", message, retry_after=1)
            self.taken += amount

    def give_back(self, amount: int) -> None:
        with self._lock:
            self.taken -= amount


class Reservation:
    """The part of the budget that one request has taken; given back as a whole at the end of a `with` block."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._taken = budget, 0

    def take(self, amount: int) -> None:
        self._budget.take(amount)
        self._taken += amount

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self._taken)
        self._taken = 0


@dataclass
class Form:
    """Files and text fields by name, in the order they arrived. File names are ignored."""

    files: dict[str, list[bytes]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)


def read_form(body: bytes, content_type: str | None, limits: Limits, fields: Sequence[str] = ()) -> Form:
    """A form with 1 to `limits.images` files named `images`, and no text fields other than `fields`."""
    form = _parse(body, content_type, max_parts=2 * limits.images + _OTHER_PARTS)
    for name in (*form.files, *form.texts):
        if name not in ("images", *fields):
            allowed = ", ".join(("images", *fields))
            raise RequestError(422, "unknown_field", f"The form has an unknown field: the allowed ones are {allowed}.")
    if "images" in form.texts:
        raise RequestError(422, "not_a_file", "A field images is text: send the images as files, with a file name.")
    if any(name in form.files for name in fields):
        raise RequestError(422, "not_a_text", f"Only images are files: send {' and '.join(fields)} as plain text.")
    count = len(form.files.get("images", []))
    if not count:
        raise RequestError(422, "no_images", "There is no image: send at least one file in the field images.")
    if count > limits.images:
        raise RequestError(422, "too_many_images", f"{count} images in one request: send at most {limits.images}.")
    return form


def read_labels(form: Form) -> list[Label]:
    """One label per image from the fields `labels` and `integers`; a single label applies to all images."""
    flag = [text.lower() for text in form.texts.get("integers", ["false"])]
    if flag not in (["true"], ["false"]):
        raise RequestError(422, "bad_field", "The field integers must be true or false, once.")
    labels = [text_label(text, integer=flag == ["true"]) for text in form.texts.get("labels", [])]
    images = len(form.files["images"])
    if len(labels) == 1:
        return labels * images
    if len(labels) != images:
        raise bad_label(f"{images} images but {len(labels)} labels: send one label per image, or one for all of them.")
    return labels


def _parse(body: bytes, content_type: str | None, max_parts: int) -> Form:
    """Any multipart form; 415 for other content types, 400 for a form that is malformed or truncated."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise RequestError(415, "not_a_form", "Send multipart/form-data with the images in fields named images.")
    boundary = options.get(b"boundary")
    if not boundary:
        raise _broken("its Content-Type names no boundary")
    form, parts, ended = Form(), 0, False

    def add(part: Field | File) -> None:
        nonlocal parts
        parts += 1
        if parts > max_parts:
            raise RequestError(422, "too_many_parts", "The form has too many parts: send fewer images per request.")
        name = (part.field_name or b"").decode("latin-1")
        if isinstance(part, File):
            part.file_object.seek(0)
            form.files.setdefault(name, []).append(part.file_object.read())
        else:
            form.texts.setdefault(name, []).append(_text(part.value or b""))

    def end() -> None:
        nonlocal ended
        ended = True

    in_memory = {"MAX_MEMORY_FILE_SIZE": float("inf")}
    try:
        FormParser("multipart/form-data", add, add, end, boundary, config=in_memory).write(body)
    except FormParserError:
        raise _broken("it is malformed") from None
    if not ended:
        raise _broken("its end is missing")
    return form


def _text(value: bytes) -> str:
    if len(value) > _MAX_FIELD_BYTES:
        message = f"A text field is longer than {_MAX_FIELD_BYTES} bytes: shorten it."
        raise RequestError(422, "field_too_long", message)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(422, "bad_text", "A text field is not UTF-8: send it in that encoding.") from None


def _broken(why: str) -> RequestError:
    return RequestError(400, "broken_form", f"The form cannot be read: {why}. Send it again, complete.")


def decode_images(files: Sequence[bytes], limits: Limits, memory: Reservation) -> list[Pixels]:
    """uint8 RGB `[H, W, 3]` of each file. An error names the file by its position, counted from 1.

    All headers are read, and the memory is reserved, before the first image is decoded.
    """
    pixels = sum(_header_pixels(data, position, limits.pixels) for position, data in enumerate(files, 1))
    if pixels > limits.request_pixels:
        message = f"The images have {pixels:,} pixels together: send at most {limits.request_pixels:,} per request."
        raise RequestError(422, "too_many_pixels", message)
    memory.take(3 * pixels)
    return [_decode(data, position) for position, data in enumerate(files, 1)]


def _decode(data: bytes, position: int) -> Pixels:
    try:
        return decode(data)
    except Exception:  # damaged files make decoders raise almost anything
        raise _unreadable(position, "it is damaged or truncated") from None


def _header_pixels(data: bytes, position: int, limit: int) -> int:
    """Width times height according to the header."""
    if not data:
        raise _unreadable(position, "it is empty")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        width = height = limit + 1
    except Exception:  # as above
        raise _unreadable(position, f"it is none of {', '.join(FORMATS)}, or its header is damaged") from None
    if width * height > limit:
        message = f"Image {position} has too many pixels: send at most {limit:,} per image."
        raise RequestError(422, "too_many_pixels", message)
    try:
        require_sides(height, width)
    except ValueError as error:
        raise RequestError(422, "bad_shape", f"Image {position} is refused: {error}.") from None
    return width * height


def _unreadable(position: int, why: str) -> RequestError:
    return RequestError(422, "unreadable_image", f"Image {position} cannot be read: {why}. Nothing was learnt.")
