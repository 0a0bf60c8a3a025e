"""A corpus of requests and images that are not as they should be, the same at every run."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from PIL import Image

BOUNDARY = "----a-boundary"
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


@dataclass(frozen=True)
class Request:
    """One request as it goes over the wire, and whether it might be right after all."""

    name: str
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    may_succeed: bool = False


def corpus(seed: int = 0) -> list[Request]:
    """Over a thousand requests."""
    draw = random.Random(seed)
    requests = [*_damaged_images(draw), *_strange_files(draw), *_strange_forms(draw)]
    return [*requests, *_strange_late_labels(draw), *_strange_names(draw), *_strange_places(draw)]


def picture(kind: str, draw: random.Random, side: int = 24) -> bytes:
    image = Image.frombytes("RGB", (side, side), draw.randbytes(3 * side * side))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def form(parts: list[tuple[str, str | None, bytes]]) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a form of (field, file name or None, content)."""
    body = b""
    for name, file, content in parts:
        disposition = f'form-data; name="{name}"' + (f'; filename="{file}"' if file is not None else "")
        body += f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"
    body += f"--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def _asked(name: str, content: bytes, draw: random.Random, may_succeed: bool = False) -> Request:
    """A file, either to be answered or to be learnt from."""
    if draw.random() < 0.5:
        body, headers = form([("images", "a.png", content)])
        return Request(name, "POST", "/predict", body, headers, may_succeed)
    body, headers = form([("images", "a.png", content), ("labels", None, b"fuzzed")])
    return Request(name, "POST", "/learn", body, headers, may_succeed)


def _damaged_images(draw: random.Random) -> Iterator[Request]:
    for number in range(120):
        for kind in FORMATS:
            good = picture(kind, draw)
            damaged = bytearray(good)
            how = ("cut off", "bits flipped", "a hole", "header shuffled")[number % 4]
            if how == "cut off":
                damaged = damaged[: draw.randrange(len(good))]
            elif how == "bits flipped":
                for _ in range(draw.randint(1, 30)):
                    damaged[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
            elif how == "a hole":
                begin = draw.randrange(len(good))
                del damaged[begin : begin + draw.randint(1, 200)]
            else:
                head = list(damaged[:32])
                draw.shuffle(head)
                damaged[:32] = bytes(head)
            yield _asked(f"{kind}, {how}, {number}", bytes(damaged), draw, may_succeed=True)


def _strange_files(draw: random.Random) -> Iterator[Request]:
    files = {
        "nothing": b"",
        "one zero": b"\0",
        "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        "PDF": b"%PDF-1.4\n1 0 obj<<>>endobj",
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) run",
        "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
        "zip": b"PK\x03\x04" + bytes(60),
        "HTML": b"<html><script>alert(1)</script></html>",
        "PNG of 100,000 x 100,000": _png(100_000, 100_000, b""),
        "PNG of 2^31 x 1": _png(2**31 - 1, 1, b""),
        "PNG of 0 x 0": _png(0, 0, b""),
        "PNG bomb": _png(20_000, 20_000, zlib.compress(bytes(4_000_000))),
        "PNG with a text of 50 MB in it": _png(
            8, 8, zlib.compress(bytes(8 * 25)), text=zlib.compress(bytes(50_000_000))
        ),
        "GIF of 65,535 x 65,535": b"GIF89a\xff\xff\xff\xff\x80\0\0"
        + bytes(6)
        + b",\0\0\0\0\xff\xff\xff\xff\0\x02\x02L\x01\0;",
        "BMP of -1 x -1": b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, -1, -1, 1, 24, *[0] * 6),
        "BMP of 2^30 x 2^30": b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, 2**30, 2**30, 1, 24, *[0] * 6),
    }
    for kind in ("TIFF", "ICO", "PPM", "TGA", "PCX", "SGI"):
        files[kind] = picture(kind, draw)
    for number, (name, content) in enumerate(files.items()):
        harmless = name == "PNG with a text of 50 MB in it"
        for times in range(4):
            yield _asked(f"{name}, {number}-{times}", content, draw, may_succeed=harmless)
    for number in range(100):
        yield _asked(f"noise {number}", draw.randbytes(draw.randint(1, 3000)), draw)


def _png(width: int, height: int, data: bytes, text: bytes | None = None) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    note = b"" if text is None else chunk(b"zTXt", b"note\0\0" + text)
    return head + note + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _strange_forms(draw: random.Random) -> Iterator[Request]:
    good = picture("PNG", draw)
    image = ("images", "a.png", good)
    forms: dict[str, list[tuple[str, str | None, bytes]]] = {
        "no image": [("labels", None, b"a")],
        "no label": [image],
        "two labels for three images": [image, image, image, ("labels", None, b"a"), ("labels", None, b"b")],
        "a label that is no text": [image, ("labels", None, b"\xff\xfe\xfa")],
        "an empty label": [image, ("labels", None, b"")],
        "a label of 10 MB": [image, ("labels", None, b"x" * 10_000_000)],
        "a label that is no number": [image, ("labels", None, b"three"), ("integers", None, b"true")],
        "a number beyond all": [image, ("labels", None, b"9" * 4000), ("integers", None, b"true")],
        "integers neither yes nor no": [image, ("labels", None, b"3"), ("integers", None, b"perhaps")],
        "an image that is a text field": [("images", None, good), ("labels", None, b"a")],
        "a label that is a file": [image, ("labels", "labels.txt", b"a")],
        "a thousand images": [image] * 1000 + [("labels", None, b"a")],
        "ten thousand fields": [("x", None, b"1")] * 10_000,
        "nothing": [],
    }
    for name, parts in forms.items():
        body, headers = form(parts)
        yield Request(f"form: {name}", "POST", "/learn", body, headers)
    body, headers = form([image, ("labels", None, b"fuzzed")])
    for number in range(150):
        cut = draw.randrange(len(body) - 20)
        yield Request(f"form cut off {number}", "POST", "/learn", body[:cut], headers)
    for number, kind in enumerate(
        [
            "",
            "text/plain",
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "\t",
            "multipart/mixed; boundary=x",
        ]
    ):
        for path in ("/learn", "/predict"):
            yield Request(f"content type {number} {path}", "POST", path, body, {"Content-Type": kind} if kind else {})
    for number, key in enumerate(["", " ", "x" * 201, "a b", "\x7f", "é"]):
        yield Request(
            f"key {number}", "POST", "/learn", body, headers | {"Idempotency-Key": key}, may_succeed=key == ""
        )
    asked, headers = form([image])
    for top in ("0", "-1", "101", "1e9", "many", "", "1;drop", "%00"):
        yield Request(f"top={top}", "POST", f"/predict?top={top}", asked, headers)


def _strange_late_labels(draw: random.Random) -> Iterator[Request]:
    headers = {"Content-Type": "application/json"}
    contents: list[bytes] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"3",
        b'"x"',
        b"\xff",
        b"[" * 100_000,
        b'{"labels": ' + b"9" * 5000 + b"}",
    ]
    values = [
        None,
        3,
        -1.5,
        "x",
        True,
        [],
        {},
        [None],
        [{}],
        [{"id": 3, "label": "a"}],
        [{"id": "x"}],
        [{"label": "a"}],
    ]
    values += [[{"id": "x", "label": bad}] for bad in (None, 1.5, True, [], {}, "", "\0", 10**400)]
    values += [
        [{"id": "x", "label": "a"}] * 100_000,
        [{"id": "x" * 100_000, "label": "a"}],
        [{"id": "none such", "label": "a"}],
    ]
    contents += [json.dumps({"labels": value}).encode() for value in values]
    for number, content in enumerate(contents):
        yield Request(f"late labels {number}", "POST", "/labels", content, headers)
    for number in range(60):
        noise = bytearray(json.dumps({"labels": [{"id": "abc", "label": "b"}]}).encode())
        noise[draw.randrange(len(noise))] = draw.randrange(256)
        yield Request(f"late labels, a byte changed {number}", "POST", "/labels", bytes(noise), headers)


def _strange_names(draw: random.Random) -> Iterator[Request]:
    headers = {"Content-Type": "application/json"}
    names = [
        "none%20such",
        "%00",
        "..%2f..%2fetc%2fpasswd",
        "%ff%fe",
        "a" * 5000,
        "%F0%9F%92%A9",
        "'%22%3B--",
        "a%2Fb",
        "%2e%2e",
        "1",
    ]
    for name in names:
        yield Request(f"delete {name[:20]}", "DELETE", f"/classes/{name}")
        yield Request(f"delete the number {name[:20]}", "DELETE", f"/classes/{name}?integer=true")
        for number, content in enumerate([b"", b"{}", b'{"label": null}', b'{"label": 1.5}', b'{"label": "b"}', b"[]"]):
            yield Request(f"rename {name[:20]} {number}", "PATCH", f"/classes/{name}", content, headers)
        yield Request(f"merge {name[:20]}", "POST", f"/classes/{name}/merge", b'{"into": "neither"}', headers)
    for number in range(40):
        name = "".join(f"%{draw.randrange(256):02x}" for _ in range(draw.randint(1, 12)))
        yield Request(f"delete by noise {number}", "DELETE", f"/classes/{name}")


def _strange_places(draw: random.Random) -> Iterator[Request]:
    for path in (
        "/..%2f..%2fetc/passwd",
        "/page/..%2f..%2f__init__.py",
        "/page/%2e%2e/settings.py",
        "/none",
        "/page/",
        "/service/",
    ):
        yield Request(f"get {path}", "GET", path)
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        for path in ("/learn", "/predict", "/labels", "/status", "/metrics"):
            yield Request(f"{method} {path}", method, path)
    for number in range(60):
        path = "/" + "".join(draw.choice("abc%2F.~/?&=;:@!$'()*+,0123456789") for _ in range(draw.randint(1, 40)))
        yield Request(f"get noise {number}", "GET", path, may_succeed=True)
