"""The spool file: what is written is read back, nothing remains of it, and memory stays small."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from small_parquet import PATHED

from prol.data import parquet_files
from prol.data.parquet_files import Spool


@given(records=st.lists(st.binary(max_size=50), min_size=1, max_size=30), order=st.randoms(use_true_random=False))
def test_records_come_back_in_any_order(records: list[bytes], order: object) -> None:
    kept = Spool(lambda: records)
    rows = list(range(len(records))) * 2
    order.shuffle(rows)  # type: ignore[attr-defined]
    assert [bytes(kept[row]) for row in rows] == [records[row] for row in rows]


def test_records_survive_pages_being_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "_RESIDENT", 5000)
    records = [bytes([i]) * 4096 for i in range(50)]
    kept = Spool(lambda: records)
    first = kept[0]
    assert all(bytes(kept[row]) == records[row] for row in (*range(50), *reversed(range(50))))
    assert bytes(first) == records[0]


def test_it_lies_in_the_cache_folder_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = Spool(lambda: [b"one", b"two"])
    assert not (tmp_path / "prol").exists()
    assert bytes(kept[1]) == b"two"
    assert list((tmp_path / "prol").iterdir()) == []


def test_a_cache_folder_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert bytes(Spool(lambda: [b"one"])[0]) == b"one"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_it_stays_reachable_without_an_open_file_and_vanishes_with_its_last_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def mapped() -> bool:
        return str(tmp_path) in Path("/proc/self/maps").read_text()

    kept = Spool(lambda: [b"one"])
    record = kept[0]
    del kept
    assert mapped()
    assert bytes(record) == b"one"
    del record
    assert not mapped()


def test_a_killed_process_leaves_nothing_behind(tmp_path: Path) -> None:
    code = """
import os, signal
from prol.data.parquet_files import Spool
kept = Spool(lambda: [b"x" * 100_000])
assert len(kept[0]) == 100_000
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == -9
    assert list((tmp_path / "prol").iterdir()) == []


def test_records_are_written_once_however_many_threads_ask() -> None:
    calls = 0

    def records() -> Iterator[bytes]:
        nonlocal calls
        calls += 1
        for i in range(100):
            yield bytes([i])

    kept = Spool(records)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda row=row: found.append(bytes(kept[row]))) for row in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [bytes([i]) for i in range(20)]
    assert calls == 1


def test_an_error_of_the_records_is_reported_each_time() -> None:
    def damaged() -> Iterator[bytes]:
        yield b"one"
        raise ValueError("row group 3 is damaged")

    kept = Spool(damaged)
    for _ in range(2):
        with pytest.raises(ValueError, match="row group 3 is damaged"):
            kept[0]


def test_a_full_disk_is_an_error_that_says_where_room_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _record: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *more: object) -> None:
            pass

    monkeypatch.setattr(parquet_files, "_unnamed_file", Full)
    with pytest.raises(OSError, match=r"No space left on device\): free space in .*prol, or set XDG_CACHE_HOME"):
        Spool(lambda: [b"one"])[0]


IMAGES, SIDE = 800, 224  # of 150 kB each, 120 MB in all

READING = """
import json, sys, tracemalloc
from pathlib import Path
import numpy as np
import pyarrow as pa
from prol.data.parquet import parquet
from prol.data.prefetch import prefetched

def peak():
    # Not from getrusage: that counts the process that started this one.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10

path, workers = sys.argv[1], int(sys.argv[2])
data = parquet(path, test_share=0)
opened = peak()
tracemalloc.start()
data.train.load([0])
spooled, traced = peak(), tracemalloc.get_traced_memory()[1]
tracemalloc.stop()
order = np.random.default_rng(0).permutation(len(data.train.labels))
batches = [order[start : start + 10] for start in range(0, len(order), 10)]
total = sum(len(loaded.images) for loaded in prefetched(data.train, batches, workers, most_bytes=8 << 20))
print(json.dumps(dict(
    opened=opened, spooled=spooled, read=peak(), traced=traced, total=total,
    arrow=pa.default_memory_pool().max_memory(),
)))
"""


@pytest.fixture(scope="module", params=["many row groups", "one row group"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "noise.parquet"
    noise = np.random.default_rng(0)
    images = []
    for i in range(IMAGES):
        picture = Image.fromarray(noise.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
        place = path.with_name(f"{i}.bmp")
        picture.save(place)
        images.append({"bytes": place.read_bytes(), "path": place.name})
        place.unlink()
    table = pa.table({"image": pa.array(images, PATHED), "label": pa.array(["cat", "dog"] * (IMAGES // 2))})
    if request.param == "many row groups":
        pq.write_table(table, path, row_group_size=50, compression="none")
    else:
        # A page is the least that can be read, and by default holds a thousand images.
        pq.write_table(table, path, compression="none", use_dictionary=False, write_batch_size=20)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("workers", [0, 2])
def test_neither_copying_nor_reading_needs_memory_for_all_images(stored: Path, workers: int, tmp_path: Path) -> None:
    whole = stored.stat().st_size
    assert whole > 110e6
    done = subprocess.run(
        [sys.executable, "-c", READING, str(stored), str(workers)],
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(tmp_path),
            "OMP_NUM_THREADS": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["total"] == IMAGES
    assert measured["arrow"] < whole / 2
    assert measured["traced"] < whole / 2
    assert measured["spooled"] - measured["opened"] < 0.75 * whole
    assert measured["read"] - measured["opened"] < 0.75 * whole
