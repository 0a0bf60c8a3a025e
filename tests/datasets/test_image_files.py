from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prol.datasets import Loaded
from prol.datasets.image_files import FileSplit, decode


def load(*paths: Path) -> Loaded:
    return FileSplit(paths, np.zeros(len(paths), dtype=np.int64)).load(range(len(paths)))


def speckled(side: int = 64) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_mode_of_a_png_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "image.png"
    Image.new("L", (5, 3), 255).convert(mode).save(path)
    image = decode(path)
    assert image.shape == (3, 5, 3)
    assert image.dtype == np.uint8


def test_a_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    path = tmp_path / "print.jpg"
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(path, quality=95)
    red, green, blue = decode(path)[4, 4].tolist()
    assert red > 200
    assert max(green, blue) < 60


def test_sixteen_bits_of_grey_are_scaled(tmp_path: Path) -> None:
    path = tmp_path / "scan.png"
    Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16)).save(path)
    assert decode(path)[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]


@pytest.mark.parametrize("mode", ["RGBA", "P"])
def test_what_is_transparent_becomes_white(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "icon.png"
    icon = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    icon.putpixel((1, 0), (200, 0, 0, 255))
    icon.convert(mode).save(path)
    image = decode(path)
    assert image[0, 0].tolist() == [255, 255, 255]
    assert image[0, 1, 0] > 150
    assert image[0, 1, 1] < 60


def test_a_photo_taken_sideways_is_turned_upright(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.new("L", (40, 20), 0)
    picture.paste(255, (0, 0, 20, 20))
    picture.save(path, exif=exif)
    image = decode(path)
    assert image.shape == (40, 20, 3)
    assert image[5, 10, 0] > 200
    assert image[35, 10, 0] < 50


def test_broken_exif_does_not_spoil_a_good_picture(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.new("RGB", (4, 2)).save(path, exif=b"Exif\0\0garbage")
    assert decode(path).shape == (2, 4, 3)


def test_broken_images_are_named_with_a_reason_and_the_others_still_come(tmp_path: Path) -> None:
    good, empty, junk, cut, gone = (
        tmp_path / name for name in ("good.png", "empty.png", "junk.png", "cut.jpg", "gone.png")
    )
    speckled().save(good)
    empty.write_bytes(b"")
    junk.write_bytes(b"this is no picture")
    speckled().save(cut)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    loaded = load(empty, good, junk, cut, gone, good)
    assert loaded.indices.tolist() == [1, 5]
    assert [bad.index for bad in loaded.unreadable] == [0, 2, 3, 4]
    assert [bad.path for bad in loaded.unreadable] == [str(path) for path in (empty, junk, cut, gone)]
    reasons = [bad.reason for bad in loaded.unreadable]
    assert reasons[0] == "the file is empty"
    assert "cannot identify image file" in reasons[1]
    assert "truncated" in reasons[2]
    assert reasons[3] == "the file is gone"


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp", "webp", "tif"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_cut_short_anywhere_never_raises(tmp_path: Path, ending: str, share: float) -> None:
    path = tmp_path / f"cut.{ending}"
    speckled().save(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    loaded = load(path)
    assert len(loaded.images) + len(loaded.unreadable) == 1


def test_only_what_is_asked_for_is_decoded(tmp_path: Path) -> None:
    good = tmp_path / "good.png"
    speckled(4).save(good)
    split = FileSplit((tmp_path / "never-there.png", good), np.array([0, 1], dtype=np.int64))
    assert split.load([1]).unreadable == []
