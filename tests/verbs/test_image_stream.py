"""`prol.stream`: the same chunks whatever the images come from, test images held out, progress, and bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import prol
from evaluation.small_data import colours

SHADES = {"dark": 30, "grey": 120, "light": 220}


def photo(name: str, number: int) -> NDArray[np.uint8]:
    noise = np.random.default_rng(number).integers(-10, 10, (20, 20, 3))
    return (noise + SHADES[name]).astype(np.uint8)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in SHADES:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(5):
            Image.fromarray(photo(name, number)).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def all_of(chunks: Any) -> tuple[list[Any], list[Any]]:
    images, labels = [], []
    for some, names in chunks:
        assert len(some) == len(names)
        images += some
        labels += names
    return images, labels


def means(images: list[Any]) -> list[int]:
    return [round(float(np.asarray(image).mean())) for image in images]


def test_a_folder_is_streamed_once_in_the_order_of_the_seed_and_a_fifth_is_held_out(photos: Path) -> None:
    stream = prol.stream(photos, chunk=5, progress=False)
    assert repr(stream) == "<stream folder: 12 images of 3 classes in 3 chunks of 5, 3 images held out>"
    assert [len(labels) for _, labels in stream] == [5, 5, 2]
    images, labels = all_of(stream)
    assert Counter(labels) == dict.fromkeys(SHADES, 4)
    assert all(abs(mean - SHADES[name]) < 5 for mean, name in zip(means(images), labels, strict=True))
    held, names = all_of(stream.held_out())
    assert Counter(names) == dict.fromkeys(SHADES, 1)
    assert len({image.tobytes() for image in images + held}) == 15
    assert all_of(prol.stream(photos, progress=False))[1] == labels
    assert all_of(prol.stream(photos, seed=1, progress=False))[1] != labels


def test_every_source_gives_the_images_and_labels_of_the_folder(photos: Path, tmp_path: Path) -> None:
    files = sorted(photos.glob("*/*.png"))
    labels = [file.parent.name for file in files]
    arrays = np.stack([np.asarray(Image.open(file)) for file in files])
    rows = {"image": [{"bytes": file.read_bytes(), "path": None} for file in files], "label": labels}
    pq.write_table(pa.table(rows), tmp_path / "photos.parquet")
    numbers = [list(SHADES).index(name) for name in labels]
    named = TensorDataset(torch.from_numpy(arrays).movedim(-1, 1), torch.tensor(numbers))
    named.classes = list(SHADES)
    expected = sorted(zip([image.tobytes() for image in arrays], labels, strict=True))
    for source in (
        str(photos),
        tmp_path / "photos.parquet",
        (arrays, labels),
        (torch.from_numpy(arrays).movedim(-1, 1), labels),
        (files, labels),
        ([Image.open(file) for file in files], labels),
        named,
    ):
        images, found = all_of(prol.stream(source, test_share=0, progress=False))
        assert sorted(zip([np.asarray(one).tobytes() for one in images], found, strict=True)) == expected


def test_a_data_set_with_test_images_of_its_own_keeps_them() -> None:
    stream = prol.stream(colours(), progress=False)
    assert (len(all_of(stream)[1]), len(all_of(stream.held_out())[1])) == (35, 30)
    assert repr(prol.stream("digits", progress=False)) == (
        "<stream digits: 1,438 images of 10 classes in 144 chunks of 10, 359 images held out>"
    )


def test_batches_of_a_loader_keep_their_order_and_become_chunks() -> None:
    pixels = torch.arange(12, dtype=torch.uint8).reshape(12, 1, 1, 1).expand(12, 3, 8, 8)
    loader = DataLoader(TensorDataset(pixels.float() / 255, torch.arange(12)), batch_size=4)
    stream = prol.stream(loader, chunk=5, progress=False)
    assert [labels for _, labels in stream] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert means(all_of(stream)[0]) == list(range(12))
    assert all_of(stream.held_out()) == ([], [])
    with pytest.raises(TypeError, match="no length"):
        len(stream)
    held = prol.stream(loader, test_share=0.5, progress=False)
    learnt = all_of(held)[1]
    assert 0 < len(learnt) < 12
    assert sorted(learnt + all_of(held.held_out())[1]) == list(range(12))


def test_progress_is_shown_on_standard_error_alone(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = prol.stream(photos, chunk=6)
    for _ in stream:
        stream.status = "80 % right"
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "stream folder: 12 images of 3 classes in 2 chunks of 6, 3 images held out"
    assert lines[1].startswith("6 of 12 images in ")
    assert lines[-1].startswith("12 of 12 images in ")
    assert lines[-1].endswith("; 80 % right")
    all_of(prol.stream(photos, progress=False))
    assert capsys.readouterr().err == ""


def test_unreadable_images_and_empty_classes_are_warned_of(photos: Path) -> None:
    (photos / "dark" / "9.png").write_bytes(b"no image")
    (photos / "empty").mkdir()
    with pytest.warns(UserWarning, match="1 folder in .*without images is left out: empty"):
        stream = prol.stream(photos, test_share=0, progress=False)
    with pytest.warns(UserWarning, match=r"skipped unreadable image .*9\.png \(cannot identify"):
        assert len(all_of(stream)[1]) == 15
    mixed = prol.stream(([photo("dark", 0), "no.jpg"], ["a", "b"]), test_share=0, progress=False)
    with pytest.warns(UserWarning, match=r"skipped unreadable image number 1 \(there is no image 'no\.jpg'"):
        assert all_of(mixed)[1] == ["a"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no-such-place", "there is no folder or file 'no-such-place'; images must come from a folder"),
        (np.zeros((2, 8, 8, 3), np.uint8), "got ndarray"),
        (7, "got int"),
        ((np.zeros((2, 8, 8, 3), np.uint8), ["a"]), "2 images but 1 labels"),
        ((1, 2, 3), r"a pair \(images, labels\), got 3 values"),
    ],
)
def test_a_source_that_is_none_is_named(source: Any, says: str) -> None:
    with pytest.raises((ValueError, OSError), match=says):
        prol.stream(source)


def test_bad_options_and_batches_are_refused() -> None:
    pair = (np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1])
    for options, says in (({"chunk": 0}, "chunk must"), ({"seed": -1}, "seed must"), ({"test_share": 1}, "test_share")):
        with pytest.raises(ValueError, match=says):
            prol.stream(pair, **options)
        with pytest.raises(ValueError, match=says):
            prol.stream([pair], **options)
    for batch, says in (({"image": 0}, "got a dict"), ((pair[0], [1]), "4 images but 1 labels")):
        with pytest.raises(ValueError, match=says):
            all_of(prol.stream([batch], progress=False))
