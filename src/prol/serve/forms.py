"""multipart/form-data taken apart in memory: no part of it ever becomes a temporary file."""

from __future__ import annotations

from dataclasses import dataclass, field

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from prol.serve.refusals import Refusal

_LONGEST_FIELD = 8192


@dataclass
class Form:
    """Files and texts by the names of their fields, in the order they came. File names are not looked at."""

    files: dict[str, list[bytes]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class _Part:
    name: str = ""
    is_file: bool = False
    data: bytearray = field(default_factory=bytearray)


def read_form(body: bytes, content_type: str | None, most_parts: int) -> Form:
    """The form in a request's body; 415 for other kinds of content, 400 for one that is broken or cut off."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise Refusal(415, "not_a_form", "Send multipart/form-data with the images in fields named images.")
    boundary = options.get(b"boundary")
    if not boundary:
        raise _broken("its Content-Type names no boundary")
    reader = _Reader(most_parts)
    try:
        reader.read(body, boundary)
    except FormParserError:
        raise _broken("it is not what its boundary promises") from None
    if not reader.ended:
        raise _broken("its end is missing")
    return reader.form


class _Reader:
    def __init__(self, most_parts: int) -> None:
        self.form, self.ended = Form(), False
        self._left = most_parts
        self._part, self._field, self._value, self._disposition = _Part(), b"", b"", b""

    def read(self, body: bytes, boundary: bytes) -> None:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_field,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header,
                "on_headers_finished": self._on_headers,
                "on_part_data": self._on_data,
                "on_part_end": self._end,
                "on_end": self._on_end,
            },
        )
        parser.write(body)

    def _begin(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Refusal(422, "too_many_parts", "The form has too many parts: send fewer images a request.")
        self._part, self._disposition = _Part(), b""

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise _broken("a part has no name")
        self._part.name, self._part.is_file = options[b"name"].decode("latin-1"), b"filename" in options

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if not self._part.is_file and len(self._part.data) + end - start > _LONGEST_FIELD:
            raise Refusal(422, "field_too_long", f"A text field is longer than {_LONGEST_FIELD} bytes: shorten it.")
        self._part.data += data[start:end]

    def _end(self) -> None:
        part = self._part
        if part.is_file:
            self.form.files.setdefault(part.name, []).append(bytes(part.data))
            return
        try:
            text = part.data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refusal(422, "bad_text", "A text field is not UTF-8: send it in that encoding.") from None
        self.form.texts.setdefault(part.name, []).append(text)

    def _on_end(self) -> None:
        self.ended = True


def _broken(why: str) -> Refusal:
    return Refusal(400, "broken_form", f"The form cannot be read: {why}. Send it again, whole.")
