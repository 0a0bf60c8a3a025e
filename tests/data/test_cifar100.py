from __future__ import annotations

import hashlib
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_sets import bare_machine, fill_classes, packed, write_cifar, write_parquet, write_pickle
from stand_in_server import StandIn, serving

from prol.data import Dataset
from prol.data.cifar100 import CIFAR100, cifar100
from prol.data.cub200 import cub200
from prol.data.published import images_per_task
from prol.options import bind_arguments

REAL = Path(__file__).parents[3] / "shared" / "data" / "cifar100"
NAMES = ("apple", "baby", "cloud")
TRAIN, TEST = (2, 0, 1, 1), (1, 2)


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_machine(monkeypatch, tmp_path / "cache")


@pytest.fixture
def official(tmp_path: Path) -> Path:
    write_cifar(tmp_path / "cifar-100-python", NAMES, TRAIN, TEST)
    return tmp_path / "cifar-100-python"


def assert_miniature(data: Dataset) -> None:
    assert data.name == "cifar100"
    assert data.class_names == NAMES
    assert data.train.labels.tolist() == list(TRAIN)
    assert data.test.labels.tolist() == list(TEST)
    assert data.tasks == 10
    assert data.split is None
    assert "Krizhevsky (2009)" in data.licence
    assert data.notes == ("this copy is not the published data set: it has 3 of 100 classes and 6 of 60,000 images",)


def test_the_official_folder_is_read_from_itself_and_from_its_parent(official: Path) -> None:
    assert_miniature(cifar100(official))
    assert_miniature(cifar100(official.parent))


def test_the_pixels_are_those_of_the_file_with_the_colours_last(tmp_path: Path) -> None:
    pixels = write_cifar(tmp_path / "cifar-100-python", NAMES, TRAIN, TEST)
    loaded = cifar100(tmp_path).train.load([3, 0])
    assert np.array_equal(loaded.images, pixels[[3, 0]])
    assert loaded.images[0].shape == (32, 32, 3)


def test_the_official_archive_is_unpacked_and_read(official: Path, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    archive = packed(official, tmp_path / "downloads" / "cifar-100-python.tar.gz")
    assert_miniature(cifar100(archive))
    assert_miniature(cifar100(archive.parent))


def test_it_is_downloaded_where_nothing_is_found(official: Path, tmp_path: Path) -> None:
    content = packed(official, tmp_path / "set.tar.gz").read_bytes()
    shutil.rmtree(official)
    with serving(StandIn(content)) as server:
        assert_miniature(cifar100(address=f"{server.address}#md5={hashlib.md5(content).hexdigest()}"))
    assert_miniature(cifar100())


def test_image_folders_are_numbered_by_their_sorted_names(tmp_path: Path) -> None:
    fill_classes(tmp_path / "train", {"cloud": 2, "apple": 1})
    fill_classes(tmp_path / "test", {"cloud": 1, "apple": 1})
    data = cifar100(tmp_path)
    assert data.class_names == ("apple", "cloud")
    assert data.train.labels.tolist() == [0, 1, 1]
    assert len(data.notes) == 1


@pytest.mark.parametrize("files", ["{}.parquet", "data/{}-00000-of-00001.parquet", "cifar100/{}/0000.parquet"])
def test_the_fine_labels_of_the_hubs_parquet_are_used(tmp_path: Path, files: str) -> None:
    names = {"fine_label": NAMES, "coarse_label": ("things",)}
    for half, labels in (("train", TRAIN), ("test", TEST)):
        columns = {"fine_label": labels, "coarse_label": [0] * len(labels)}
        write_parquet(tmp_path / "hub" / files.format(half), columns, names, image="img")
    data = cifar100(tmp_path / "hub")
    assert_miniature(data)
    assert data.test.load([1]).images[0].shape == (10, 12, 3)


def test_one_split_alone_is_not_a_copy(official: Path) -> None:
    (official / "test").unlink()
    with pytest.raises(ValueError, match=r"expected the folder cifar-100-python with .*; found meta, train$"):
        cifar100(official)


def test_a_damaged_file_is_named(official: Path) -> None:
    whole = (official / "train").read_bytes()
    for broken in (b"", b"junk", whole[: len(whole) // 2], whole[100:]):
        (official / "train").write_bytes(broken)
        with pytest.raises(ValueError, match=r"cifar-100-python/train is damaged or not a file of CIFAR-100 \(.+\)"):
            cifar100(official)


class Malicious:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


def test_a_pickle_that_would_run_code_is_refused(official: Path, tmp_path: Path) -> None:
    for protocol in (2, 4):
        for content in ([Malicious(tmp_path / "trace")], print, {b"fine_label_names": eval}):
            (official / "meta").write_bytes(pickle.dumps(content, protocol=protocol))
            with pytest.raises(ValueError, match=r"meta is damaged or not a file of CIFAR-100 \(it asks for \S+\)"):
                cifar100(official)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({b"data": np.zeros((4, 10), np.uint8)}, r"its data are uint8 \(4, 10\) with 4 labels"),
        ({b"data": np.zeros((4, 3072))}, r"its data are float64 \(4, 3072\)"),
        ({b"data": np.zeros((3, 3072), np.uint8)}, r"its data are uint8 \(3, 3072\) with 4 labels"),
        ({b"data": [1, 2]}, "no ndarray called 'data'"),
        ({b"fine_labels": [0, 1, 2, 3]}, "not whole numbers from 0 to 2"),
        ({b"fine_labels": [0, 1, 2, -1]}, "not whole numbers from 0 to 2"),
        ({b"fine_labels": [0.0, 1.0, 2.0, 0.0]}, "not whole numbers from 0 to 2"),
        ({b"fine_labels": None}, "no list called 'fine_labels'"),
    ],
)
def test_a_pickle_of_something_else_is_refused(official: Path, change: dict[bytes, Any], complaint: str) -> None:
    content = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": [0, 1, 2, 0]}
    write_pickle(official / "train", content | change)
    with pytest.raises(ValueError, match=rf"train is not a file of CIFAR-100: .*{complaint}"):
        cifar100(official)


def test_files_written_again_by_python_3_are_read(official: Path) -> None:
    content = {"data": np.zeros((4, 3072), np.uint8), "fine_labels": list(TRAIN)}
    (official / "train").write_bytes(pickle.dumps(content, protocol=4))
    assert_miniature(cifar100(official))


@pytest.mark.parametrize("published", [cifar100, cub200])
def test_published_splits_take_no_index_file(published: Callable[..., Dataset]) -> None:
    with pytest.raises(ValueError, match="unknown option 'split'"):
        bind_arguments(published, {"split": "a.json"}, reserved=("data",))


@pytest.mark.skipif(not REAL.is_dir(), reason=f"CIFAR-100 is not in {REAL}")
def test_the_whole_data_set_is_as_published() -> None:
    data = cifar100(REAL)
    assert data.notes == ()
    assert len(data.class_names) == 100
    assert data.class_names[:3] == ("apple", "aquarium_fish", "baby")
    assert np.bincount(data.train.labels).tolist() == [500] * 100
    assert np.bincount(data.test.labels).tolist() == [100] * 100
    assert images_per_task(data.train.labels) == list(CIFAR100.train_per_task) == [5000] * 10
    assert images_per_task(data.test.labels) == list(CIFAR100.test_per_task) == [1000] * 10
    for half in (data.train, data.test):
        loaded = half.load(np.linspace(0, len(half.labels) - 1, 50).astype(np.int64))
        assert loaded.unreadable == []
        assert {image.shape for image in loaded.images} == {(32, 32, 3)}
    assert cifar100(REAL.parent).class_names == data.class_names
