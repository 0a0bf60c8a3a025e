"""Mutations of valid bytes and JSON values, the same for the same generator."""

from __future__ import annotations

import copy
import math
import struct
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (0, -1, 1, 2, 255, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63), 10**18, 10**30, 10**400)
FRACTIONS = (0.5, -0.0, 1e-320, 1e30, 1e308, -1e308, math.nan, math.inf, -math.inf)
TEXTS = ("", " ", "\0", "\ud800", "é", "../x", "/", "x" * 5000, "9" * 400, "nan", "%00", "a\nb", "cuda:99", "1e999")
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": 0}, [0] * 3000)
_PIECE = 64


def spoil(data: bytes, random: Random, times: int | None = None) -> bytes:
    """One to four mutations of bytes."""
    spoilt = bytearray(data)
    for _ in range(random.randint(1, 4) if times is None else times):
        random.choice(_MUTATIONS)(spoilt, random)
    return bytes(spoilt)


def _flip_bits(data: bytearray, random: Random) -> None:
    for _ in range(random.randint(1, 8) if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _truncate(data: bytearray, random: Random) -> None:
    del data[random.randint(0, len(data)) :]


def _piece(data: bytearray, random: Random) -> slice:
    start = random.randint(0, len(data))
    return slice(start, min(len(data), start + random.randint(1, _PIECE)))


def _remove(data: bytearray, random: Random) -> None:
    del data[_piece(data, random)]


def _duplicate(data: bytearray, random: Random) -> None:
    piece = _piece(data, random)
    data[piece.stop : piece.stop] = data[piece] * random.choice((1, 1, 2, 50))


def _swap(data: bytearray, random: Random) -> None:
    one, other = sorted((_piece(data, random), _piece(data, random)), key=lambda piece: piece.start)
    if one.stop <= other.start:
        data[other], data[one] = data[one], data[other]


def _write_number(data: bytearray, random: Random) -> None:
    size = random.choice((1, 2, 4, 8))
    if len(data) >= size:
        start = random.randint(0, len(data) - size)
        number = random.choice(
            (0, 1, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, random.getrandbits(64))
        )
        data[start : start + size] = (number % 256**size).to_bytes(size, random.choice(("big", "little")))


def _insert_noise(data: bytearray, random: Random) -> None:
    start = random.randint(0, len(data))
    data[start:start] = random.randbytes(random.randint(1, _PIECE))


_MUTATIONS: tuple[Callable[[bytearray, Random], None], ...]
_MUTATIONS = (_flip_bits, _flip_bits, _write_number, _truncate, _remove, _duplicate, _swap, _insert_noise)


def edited(value: Any, random: Random, times: int | None = None) -> Any:
    """A copy of a JSON value of which one to three parts are replaced, removed, renamed, duplicated or swapped."""
    root = [copy.deepcopy(value)]
    for _ in range(random.randint(1, 3) if times is None else times):
        places = [place for place in _places(root) if place[0] is not root] or [(root, 0)]
        container, key = random.choice(places)
        how = random.random()
        if how < 0.6:
            container[key] = _other(container[key], random)
        elif how < 0.7 and container is not root:
            del container[key]
        elif how < 0.8 and isinstance(container, dict):
            container[spoil_text(key, random)] = container.pop(key)
        elif how < 0.9 and isinstance(container, list) and container is not root:
            container.insert(random.randint(0, len(container)), copy.deepcopy(container[key]))
        else:
            other, place = random.choice(places)
            # Copies, because a value may be inside the other one.
            container[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(container[key])
    return root[0]


def spoil_text(text: str, random: Random) -> str:
    place = random.randint(0, len(text))
    return random.choice((text[:place], text[place:], text + text, text.upper(), f"{text[:place]}é{text[place:]}"))


def _other(value: Any, random: Random) -> Any:
    """Half the time of the same type, which reaches further."""
    same = random.random() < 0.5
    if same and isinstance(value, bool):
        return not value
    if same and isinstance(value, int | float):
        return random.choice((value + 1, -value, value * 1000, *NUMBERS, *FRACTIONS))
    if same and isinstance(value, str):
        return random.choice((spoil_text(value, random), random.choice(TEXTS)))
    if same and isinstance(value, list):
        return random.choice((value * 2, value[::-1], value[:-1], [value], value * 500 if len(value) < 10 else []))
    return copy.deepcopy(random.choice((*NUMBERS, *FRACTIONS, *TEXTS, *OTHERS, deep(random.choice((5, 50, 400))))))


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each key in it."""
    found = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        for key in range(len(container)) if isinstance(container, list) else list(container):
            found.append((container, key))
            if isinstance(container[key], list | dict):
                waiting.append(container[key])
    return found


def spoil_png(data: bytes, random: Random) -> bytes:
    """A PNG with pieces changed, swapped or repeated, all with right checksums."""
    pieces, at = [], 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        pieces.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    for _ in range(random.randint(1, 2)):
        place, other = (random.randrange(len(pieces)) for _ in range(2))
        name, content = pieces[place]
        how = random.random()
        if how < 0.6:
            pieces[place] = name, spoil(content, random, 1)
        elif how < 0.8:
            pieces[place], pieces[other] = pieces[other], pieces[place]
        else:
            pieces.insert(other, pieces[place])
    whole = b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in pieces
    )
    return data[:8] + whole


def spoil_tar(data: bytes, random: Random) -> bytes:
    """An uncompressed tar archive with fields of headers changed, and their checksums right."""
    spoilt = bytearray(data)
    headers = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    for _ in range(random.randint(1, 3)):
        at = random.choice(headers)
        start, size = random.choice(_TAR_FIELDS)
        field = slice(at + start, at + start + size)
        if size == 1:
            spoilt[field] = random.choice(b"0123456789xgLKSDV\0\xff").to_bytes(1, "big")
        elif start in _TAR_NUMBERS:
            spoilt[field] = _tar_number(size, random)
        else:
            spoilt[field] = spoil(bytes(spoilt[field]), random, 1)[:size].ljust(size, b"\0")
        header = bytes(spoilt[at : at + 148]) + b" " * 8 + bytes(spoilt[at + 156 : at + 512])
        spoilt[at + 148 : at + 156] = f"{sum(header):06o}\0 ".encode()
    return bytes(spoilt)


_TAR_FIELDS = (
    (0, 100),
    (100, 8),
    (108, 8),
    (124, 12),
    (124, 12),
    (136, 12),
    (156, 1),
    (156, 1),
    (157, 100),
    (345, 155),
)
_TAR_NUMBERS = (100, 108, 124, 136)


def _tar_number(size: int, random: Random) -> bytes:
    """Octal digits, or the binary form of numbers that are too large for them."""
    if random.random() < 0.5:
        return f"{random.choice((0, 1, 511, 513, 8 ** (size - 1) - 1)):0{size - 1}o}".encode() + b"\0"
    first = random.choice((b"\x80", b"\xff"))
    return first + random.choice((random.randbytes(size - 1), b"\xff" * (size - 1), bytes(size - 2) + b"\1"))
