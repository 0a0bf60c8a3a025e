"""Decoding: every kind of image, the pixels of Pillow to the bit, and large images shrunk."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch  # noqa: F401  # opens the short way
from numpy.typing import NDArray
from PIL import Image

from prol.data import decoding
from prol.data.decoding import SHORT_SIDE, decode
from prol.pictures import rgb_array

KINDS = ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"]


def picture(width: int = 61, height: int = 43, seed: int = 0) -> Image.Image:
    """Smooth blobs of colour with some noise, as a photograph has."""
    noise = np.random.default_rng(seed)
    blobs = Image.fromarray(noise.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((width, height), 3)
    grain = noise.integers(-8, 9, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(blobs, np.int16) + grain, 0, 255).astype(np.uint8))


def encode(image: Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def plain(data: bytes) -> NDArray[np.uint8]:
    """What Pillow gives without any of our shortcuts."""
    with Image.open(io.BytesIO(data)) as image:
        return np.array(image.convert("RGB"))


# The same pixels


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_images_keep_the_pixels_of_pillow_from_a_path_bytes_or_a_view(tmp_path: Path, kind: str) -> None:
    data = encode(picture(), kind)
    (tmp_path / "image").write_bytes(data)
    expected = plain(data)
    for source in (tmp_path / "image", data, memoryview(data)):
        image = decode(source)
        assert np.array_equal(image, expected)
        assert image.dtype == np.uint8
        assert image.flags.writeable
        assert image.flags.c_contiguous


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (17, 33), (160, 96), (500, 375)])
def test_a_plain_jpeg_takes_the_short_way_and_keeps_the_pixels_of_pillow(
    subsampling: int, progressive: bool, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(picture(*size), "JPEG", subsampling=subsampling, progressive=progressive, quality=80)
    monkeypatch.setattr(decoding, "_open", None)  # the long way is closed
    assert np.array_equal(decode(data), plain(data))


@pytest.mark.parametrize(
    "data",
    [
        encode(picture().convert("L"), "JPEG"),
        encode(picture().convert("CMYK"), "JPEG"),
        encode(picture(), "JPEG", exif=Image.Exif()),
        encode(picture(), "JPEG", keep_rgb=True),
        encode(picture(), "PNG"),
        encode(picture(), "JPEG")[:300],
        b"\xff\xd8\xff",
        b"",
    ],
    ids=["grey", "cmyk", "exif", "stored as rgb", "png", "cut", "three bytes", "nothing"],
)
def test_whatever_is_not_plain_is_left_to_pillow(data: bytes) -> None:
    assert decoding.plain_size(data) is None


def test_damaged_jpegs_end_as_with_pillow(capfd: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(0)
    data = encode(picture(160, 96), "JPEG")
    for _ in range(300):
        damaged = bytearray(data)
        if rng.random() < 0.3:
            del damaged[rng.randrange(2, len(data)) :]
        for _ in range(rng.randrange(3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        outcomes = []
        for way in (plain, decode):
            try:
                outcomes.append(way(bytes(damaged)).tobytes())
            except Exception:
                outcomes.append(b"refused")
        assert outcomes[0] == outcomes[1]
    capfd.readouterr()  # the JPEG library murmurs on standard error


def test_a_decoder_that_gives_other_pixels_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = decoding._by_pillow
    data = encode(picture(), "JPEG")
    decoding._decoder.cache_clear()
    monkeypatch.setattr(decoding, "_by_pillow", lambda probe: usual(probe) ^ 1)
    try:
        assert decoding._decoder() is None
        assert np.array_equal(decode(data), plain(data))
    finally:
        decoding._decoder.cache_clear()


def test_the_short_way_is_open_here_and_gives_no_warning() -> None:
    assert "torch" in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoding._decoder.cache_clear()
        assert decoding.decode_plain_jpeg(encode(picture(), "JPEG")) is not None


def test_looking_at_images_does_not_import_torch() -> None:
    code = """
import io, sys
from PIL import Image
import prol.data.folder, prol.data.parquet, prol.data.prefetch
from prol.data.decoding import decode
file = io.BytesIO()
Image.new("RGB", (8, 8)).save(file, "JPEG")
assert decode(file.getvalue()).shape == (8, 8, 3)
assert not {"torch", "torchvision"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Modes and notes


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_mode_of_a_png_becomes_rgb(mode: str) -> None:
    image = decode(encode(Image.new("L", (5, 3), 255).convert(mode)))
    assert image.shape == (3, 5, 3)
    assert image.dtype == np.uint8
    assert np.all(image == 255) or mode == "I;16"


def test_a_cmyk_jpeg_becomes_rgb() -> None:
    red, green, blue = decode(encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=95))[4, 4].tolist()
    assert red > 200
    assert max(green, blue) < 60


def test_sixteen_bits_of_grey_are_scaled() -> None:
    data = encode(Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16)))
    assert decode(data)[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_what_is_transparent_becomes_white(mode: str) -> None:
    icon = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    icon.putpixel((1, 0), (200, 0, 0, 255))
    image = decode(encode(icon.convert(mode)))
    assert image[0, 0].tolist() == [255, 255, 255]
    assert image[0, 1, 0] > 150
    assert image[0, 1, 1] < 60


def test_a_colour_that_stands_for_transparent_becomes_white() -> None:
    image = decode(encode(Image.new("RGB", (2, 2), (9, 9, 9)), "PNG", transparency=(9, 9, 9)))
    assert np.all(image == 255)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_taken_sideways_is_turned_upright(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(picture(), kind, exif=exif)
    image = decode(data)
    assert image.shape == ((43, 61, 3) if orientation < 5 else (61, 43, 3))
    with Image.open(io.BytesIO(data)) as opened:
        assert np.array_equal(image, rgb_array(opened))


def test_broken_exif_does_not_spoil_a_good_picture() -> None:
    assert decode(encode(Image.new("RGB", (4, 2)), exif=b"Exif\0\0garbage")).shape == (2, 4, 3)


def test_an_animation_gives_its_first_picture() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    assert decode(encode(frames[0], "GIF", save_all=True, append_images=frames[1:]))[0, 0].tolist() == [255, 0, 0]


# Large images


@pytest.mark.parametrize(
    ("size", "shrunk"),
    [
        ((2047, 1500), (2047, 1500)),
        ((2048, 2048), (1024, 1024)),
        ((2049, 3100), (1025, 1550)),
        ((5000, 100), (5000, 100)),
        ((3072, 3072), {"JPEG": (1536, 1536), "PNG": (1024, 1024)}),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_large_image_is_shrunk_by_a_whole_factor_but_never_below_the_bound(
    size: tuple[int, int], shrunk: Any, kind: str
) -> None:
    width, height = shrunk[kind] if isinstance(shrunk, dict) else shrunk
    image = decode(encode(Image.new("RGB", size, (200, 100, 50)), kind, **({"quality": 95} if kind == "JPEG" else {})))
    assert image.shape == (height, width, 3)
    assert np.all(np.abs(image.astype(int) - (200, 100, 50)) <= 2)
    assert min(size) < SHORT_SIDE or min(width, height) >= SHORT_SIDE


def test_a_jpeg_above_what_its_decoder_shrinks_is_shrunk_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SHORT_SIDE", 64)
    image = decode(encode(Image.new("L", (16 * 64 + 40, 16 * 64), 90), "JPEG"))
    assert image.shape == (64, 67, 3)
    assert np.all(image == 90)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK"])
def test_large_images_of_every_mode_are_shrunk_to_the_same_colours(mode: str) -> None:
    large, small = (Image.new("L", (side, side), 255).convert(mode) for side in (2048, 16))
    kind = "TIFF" if mode == "CMYK" else "PNG"
    image = decode(encode(large, kind))
    assert image.shape == (1024, 1024, 3)
    assert np.all(image == decode(encode(small, kind))[0, 0])


def test_a_large_photo_taken_sideways_is_shrunk_and_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("JPEG", "PNG"):
        photo = Image.new("L", (4096, 2048), 0)
        photo.paste(255, (0, 0, 2048, 2048))
        image = decode(encode(photo, kind, exif=exif))
        assert image.shape == (2048, 1024, 3)
        assert image[100, 500, 0] > 200
        assert image[1900, 500, 0] < 50


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF", "WEBP", "JPEG"])
def test_large_images_give_no_warning_and_too_large_ones_are_refused_with_their_megapixels(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(Image.new("L", (40, 30)).convert("P" if kind == "GIF" else "RGB"), kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 600)
        assert decode(data).shape == (30, 40, 3)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 599)
        with pytest.raises(Image.DecompressionBombError, match=r"40 x 30: 0 megapixels|\(1200 pixels\) exceeds"):
            decode(data)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
        assert decode(data).shape == (30, 40, 3)


def test_the_first_jpeg_of_a_process_may_come_under_a_tiny_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 600)
    decoding._decoder.cache_clear()
    assert decode(encode(Image.new("RGB", (40, 30)), "JPEG")).shape == (30, 40, 3)


def test_a_rare_kind_of_large_image_gives_no_warning_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(encode(Image.new("RGB", (40, 30)), "PPM")).shape == (30, 40, 3)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "PPM"])
def test_the_reason_for_refusing_a_large_image_is_in_megapixels(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Image.new("RGB", (3000, 1000)), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)
    (bad,) = decoding.decode_all([7], lambda _: data, lambda index: f"{index}.png").unreadable
    assert (bad.index, bad.path) == (7, "7.png")
    assert bad.reason.removeprefix("3000 x 1000: ") == "3 megapixels, at most 2 are read (DecompressionBombError)"


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_image_of_an_extreme_shape_is_refused_before_it_is_decoded(kind: str) -> None:
    encoded = {size: encode(Image.new("RGB", size), kind) for size in ((10_000, 10), (10_001, 10))}
    assert decode(encoded[10_000, 10]).shape == (10, 10_000, 3)
    cut = encoded[10_001, 10][: -len(encoded[10_001, 10]) // 3]  # its pixels are missing, which is not what is reported
    (bad,) = decoding.decode_all([0], lambda _: cut, str).unreadable
    assert bad.reason.startswith("an image of 10001 x 10 pixels is too narrow: one side may be at most 1000 times")
