from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prol.data import Loaded
from prol.data.image_files import FileSplit


def load(*paths: Path) -> Loaded:
    return FileSplit(paths, np.zeros(len(paths), dtype=np.int64)).load(range(len(paths)))


def speckled(side: int = 64) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))


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
    assert reasons[1] == "cannot identify image file (UnidentifiedImageError)"
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
