"""Every kind of bad data has one outcome: the run stops with a sentence, or goes on and names what it passes over."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from small_parquet import encoded, write

from prol.data import Loaded
from prol.data.folder import folder
from prol.data.parquet import parquet, read_parquet

PETS = ["cat", "dog", "emu"]


def refusal(act: Callable[[], object]) -> str:
    """The one sentence of a refusal, which is never an error of the parquet library itself."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        act()
    assert type(caught.value) is ValueError
    assert "\n" not in str(caught.value)
    return str(caught.value)


def loaded_from_parquet(place: Path, *images: bytes) -> Loaded:
    path = write(place / "pets.parquet", ["cat"] * len(images), [{"bytes": image, "path": None} for image in images])
    return read_parquet([path]).images.load(range(len(images)))


def loaded_from_folder(place: Path, *images: bytes) -> Loaded:
    (place / "cat").mkdir()
    for i, image in enumerate(images):
        (place / "cat" / f"{i}.png").write_bytes(image)
    return folder(place, test_share=0).train.load(range(len(images)))


both_places = pytest.mark.parametrize("loaded_from", [loaded_from_parquet, loaded_from_folder])
Load = Callable[..., Loaded]


def black_png(width: int, height: int) -> bytes:
    """A PNG of one bit a pixel, made without ever having its pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer, row = zlib.compressobj(1), bytes(1 + (width + 7) // 8)
    pixels = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


# Parquet files that are damaged: stops


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("name", ["pets.parquet", "train.parquet", "test.parquet"])
def test_a_parquet_file_truncated_stops_at_opening_and_is_named(tmp_path: Path, share: float, name: str) -> None:
    for half in {"train.parquet", "test.parquet", name} if name != "pets.parquet" else {name}:
        write(tmp_path / half, [0, 1, 2] * 20, names=PETS)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
    said = refusal(lambda: parquet(tmp_path))
    assert f"{str(tmp_path / name)!r} is not a parquet file, or is damaged or truncated" in said
    assert said.endswith("get it again")


def test_a_file_of_something_else_stops_at_opening_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.parquet").write_text("this is no parquet file, whatever it is called " * 9)
    assert "notes.parquet' is not a parquet file" in refusal(lambda: parquet(tmp_path))


def damage(path: Path, group: int, column: int = 0) -> None:
    """Overwrites some bytes in the middle of one column of a row group."""
    place = pq.ParquetFile(path).metadata.row_group(group).column(column)
    start = place.dictionary_page_offset if place.has_dictionary_page else place.data_page_offset
    middle = start + place.total_compressed_size // 2
    content = bytearray(path.read_bytes())
    content[middle : middle + 40] = b"\x5a" * 40
    path.write_bytes(bytes(content))


def noise(count: int) -> list[dict[str, Any]]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    images = []
    for picture in pixels:
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "BMP")
        images.append({"bytes": file.getvalue(), "path": None})
    return images


def test_a_row_group_damaged_in_the_middle_stops_at_the_first_image_and_the_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", [0, 1, 2] * 4, noise(12), names=PETS, compression="gzip")
    damage(path, group=1)
    data = parquet(path)
    assert len(data.train.labels) + len(data.test.labels) == 12
    for _ in range(2):
        said = refusal(lambda: data.train.load([0]))
        assert f"{str(path)!r} is not a parquet file, or is damaged or truncated" in said


def test_damage_is_found_by_checksums_where_the_file_has_them(tmp_path: Path) -> None:
    path = tmp_path / "pets.parquet"
    table = pa.table({"image": [image["bytes"] for image in noise(12)], "label": ["cat", "dog"] * 6})
    how = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=4, **how)
    damage(path, group=1)
    images = read_parquet([path]).images
    assert str(path) in refusal(lambda: images.load([0]))


def test_damaged_labels_stop_at_opening_and_the_file_is_named(tmp_path: Path) -> None:
    path = write(
        tmp_path / "pets.parquet", list(range(4000)), [encoded()] * 4000, rows_a_group=1000, compression="gzip"
    )
    damage(path, group=2, column=1)
    assert str(path) in refusal(lambda: parquet(path))


# Labels that cannot be: stops


@pytest.mark.parametrize("value", [3, -1, 1_000_000])
def test_a_label_out_of_range_stops_with_file_row_value_and_number_of_classes(tmp_path: Path, value: int) -> None:
    path = write(tmp_path / "pets.parquet", [0, 1, 2, 0, value, 1, value], names=PETS)
    said = refusal(lambda: parquet(path))
    assert said == (
        f"row 4 of {str(path)!r} has {value} in column 'label': a label must be from 0 to 2, "
        f"because the file names 3 classes (2 such rows)"
    )


def test_a_negative_label_stops_even_where_classes_have_no_names(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", [5, -7])
    assert f"row 1 of {str(path)!r} has -7 in column 'label': a label must be 0 or more" in refusal(
        lambda: parquet(path)
    )


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, None], ["cat", "dog", "cat", "cat", "cat", None]])
def test_a_missing_label_stops_with_file_and_row(tmp_path: Path, labels: list[Any]) -> None:
    path = write(tmp_path / "pets.parquet", labels, names=PETS)
    assert f"row 5 of {str(path)!r} has no value in column 'label'" in refusal(lambda: parquet(path))


def test_labels_that_are_no_text_stop_and_the_file_is_named(tmp_path: Path) -> None:
    odd = pa.array([b"cat", b"d\xffg"]).view(pa.string())
    table = pa.table({"image": [encoded(), encoded()], "label": odd})
    pq.write_table(table, tmp_path / "pets.parquet")
    assert "pets.parquet" in refusal(lambda: parquet(tmp_path))


def test_several_classes_of_one_name_stop_with_the_names(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", [0, 1], names=["cat", "crane", "cat", "crane", "dog"])
    assert f"{str(path)!r} has several classes of one name: cat, crane;" in refusal(lambda: parquet(path))


@pytest.mark.parametrize("names", [[["cat"], ["cat"]], [{}, {}]])
def test_class_names_that_are_no_text_are_compared_as_text(tmp_path: Path, names: list[Any]) -> None:
    path = write(tmp_path / "pets.parquet", [0, 1], names=names)
    assert "has several classes of one name" in refusal(lambda: parquet(path))


def test_metadata_nested_without_end_have_no_class_names(tmp_path: Path) -> None:
    table = pa.table({"image": [encoded()], "label": [7]}, metadata={"huggingface": "[" * 100_000})
    pq.write_table(table, tmp_path / "pets.parquet")
    assert parquet(tmp_path, test_share=0).class_names == ("7",)


def test_a_path_that_is_too_long_is_skipped_with_the_reason(tmp_path: Path) -> None:
    images = [{"bytes": None, "path": "x" * 5000}, {"bytes": encoded(), "path": None}]
    loaded = read_parquet([write(tmp_path / "pets.parquet", ["cat", "cat"], images)]).images.load([0, 1])
    assert [one.reason for one in loaded.unreadable] == ["[Errno 36] File name too long (OSError)"]
    assert len(loaded.images) == 1


def test_files_without_rows_stop(tmp_path: Path) -> None:
    path = write(tmp_path / "pets.parquet", [], names=PETS, label_type=pa.int64())
    assert f"no images in {path}: the parquet files have no rows" in refusal(lambda: parquet(path))


# Classes without images: goes on


def test_a_named_class_without_images_is_noted_and_keeps_its_number(tmp_path: Path) -> None:
    data = parquet(write(tmp_path / "pets.parquet", [0, 2, 2, 0], names=PETS))
    assert data.class_names == ("cat", "dog", "emu")
    assert sorted(data.train.labels.tolist() + data.test.labels.tolist()) == [0, 0, 2, 2]
    assert data.notes == ("1 class without images is left out: dog",)


# Odd images: read


@both_places
@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (encoded(mode="L"), (4, 6, 3)),
        (encoded(mode="1"), (4, 6, 3)),
        (encoded(mode="RGBA"), (4, 6, 3)),
        (encoded(mode="LA"), (4, 6, 3)),
        (encoded(mode="I;16"), (4, 6, 3)),
        (encoded(mode="CMYK", kind="JPEG"), (4, 6, 3)),
        (encoded(mode="L", kind="JPEG"), (4, 6, 3)),
        (encoded(size=(1, 1)), (1, 1, 3)),
        (encoded(size=(1, 1), kind="JPEG"), (1, 1, 3)),
        (encoded(size=(20_000, 20)), (20, 20_000, 3)),
        (black_png(9_500, 9_500), (1_056, 1_056, 3)),
    ],
    ids=["grey", "bits", "alpha", "grey alpha", "16 bits", "cmyk", "grey jpeg", "1x1", "1x1 jpeg", "long", "90 MP"],
)
def test_odd_images_are_read(tmp_path: Path, loaded_from: Load, image: bytes, shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = loaded_from(tmp_path, image)
    assert [image.shape for image in loaded.images] == [shape]
    assert loaded.unreadable == []


# Images that cannot be read: goes on


@both_places
def test_an_image_too_large_for_any_memory_is_passed_over_with_its_megapixels(
    tmp_path: Path, loaded_from: Load
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = loaded_from(tmp_path, encoded(), black_png(20_000, 20_000), encoded())
    assert loaded.indices.tolist() == [0, 2]
    assert [(bad.index, bad.reason) for bad in loaded.unreadable] == [
        (1, "20000 x 20000: 400 megapixels, at most 179 are read (DecompressionBombError)")
    ]


@both_places
@pytest.mark.parametrize(
    ("image", "said"),
    [
        (b"this is no image", r"^cannot identify image file \(UnidentifiedImageError\)$"),
        (b"", "^(the file is empty|there is no image)$"),
        (encoded(size=(60, 60), kind="JPEG")[:-20], "truncated"),
        (encoded(size=(60, 60))[:60], "truncated|Truncated"),
        (b"\xff\xd8\xff and no more", "cannot identify"),
        (b"BM and no more of it than this", r"\w+"),
        (b"%PDF-1.4 a document", "cannot identify"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "cannot identify"),
    ],
)
def test_what_is_no_image_is_passed_over_and_named(tmp_path: Path, loaded_from: Load, image: bytes, said: str) -> None:
    loaded = loaded_from(tmp_path, encoded(1), image, encoded(2))
    assert loaded.indices.tolist() == [0, 2]
    (bad,) = loaded.unreadable
    assert bad.index == 1
    assert bad.path == str(tmp_path / ("pets.parquet#1" if loaded_from is loaded_from_parquet else "cat/1.png"))
    assert "0x" not in bad.reason
    assert re.search(said, bad.reason)


def test_damage_that_no_checksum_shows_costs_only_the_image_it_hits(tmp_path: Path) -> None:
    images = [{"bytes": encoded(i, (40, 40)), "path": None} for i in range(12)]
    path = write(tmp_path / "pets.parquet", ["cat"] * 12, images, compression="none")
    content = bytearray(path.read_bytes())
    middle = content.index(images[5]["bytes"]) + 60
    content[middle : middle + 10] = b"\x5a" * 10
    path.write_bytes(bytes(content))
    loaded = read_parquet([path]).images.load(range(12))
    assert loaded.indices.tolist() == [i for i in range(12) if i != 5]
    assert [(bad.index, bad.path) for bad in loaded.unreadable] == [(5, f"{path}#5")]
