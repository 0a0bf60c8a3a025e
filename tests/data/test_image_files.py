"""Which files are images, and what becomes of those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prol.data import Loaded
from prol.data.folder import FileSplit, find_images


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
def test_a_file_truncated_anywhere_never_raises(tmp_path: Path, ending: str, share: float) -> None:
    path = tmp_path / f"cut.{ending}"
    speckled().save(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    loaded = load(path)
    assert len(loaded.images) + len(loaded.unreadable) == 1


def test_only_what_is_requested_is_decoded(tmp_path: Path) -> None:
    good = tmp_path / "good.png"
    speckled(4).save(good)
    split = FileSplit((tmp_path / "never-there.png", good), np.array([0, 1], dtype=np.int64))
    assert split.load([1]).unreadable == []


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.jpg", "b.PNG", "notes.txt", ".hidden.jpg", "deep/er/c.webp", "[x].jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    monkeypatch.chdir(tmp_path)
    return Path("photos")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["photos"], ["[x].jpg", "a.jpg", "b.PNG", "deep/er/c.webp"]),
        (["photos/b.PNG", "photos/a.jpg"], ["b.PNG", "a.jpg"]),
        (["photos/*.jpg"], ["[x].jpg", "a.jpg"]),
        (["photos/**/*.webp"], ["deep/er/c.webp"]),
        (["photos/d*"], ["deep/er/c.webp"]),
        (["photos/notes.txt"], ["notes.txt"]),  # named outright, so it is for the decoder to say what it is
        (["photos/[x].jpg"], ["[x].jpg"]),  # a name that exists is no pattern
        (["photos/a.jpg", "photos", "photos/a.jpg"], ["a.jpg", "[x].jpg", "b.PNG", "deep/er/c.webp"]),
    ],
)
def test_names_lead_to_images_each_once_in_their_order(photos: Path, names: list[str], found: list[str]) -> None:
    given = find_images(names)
    assert list(given.paths) == [photos / name for name in found]
    assert given.missing == ()


def test_names_that_lead_nowhere_are_reported_with_the_reason(photos: Path) -> None:
    (photos / "empty").mkdir()
    given = find_images(["photos/empty", "gone.jpg", "photos/*.tif", "/dev/null", "photos/a.jpg"])
    assert given.paths == (photos / "a.jpg",)
    assert [name for name, _ in given.missing] == ["photos/empty", "gone.jpg", "photos/*.tif", "/dev/null"]
    assert [reason.split("(")[0].strip() for _, reason in given.missing] == [
        "there are no images in this folder",
        "there is no such file",
        "there is no such file",
        "this is not a file",
    ]
