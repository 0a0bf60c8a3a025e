"""Files, folders and patterns that name images."""

from __future__ import annotations

from pathlib import Path

import pytest

from prol.data.image_files import find_images


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


def test_names_that_lead_nowhere_are_told_with_the_reason(photos: Path) -> None:
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
