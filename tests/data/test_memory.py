"""Reading tens of megabytes of images never holds them in memory together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from small_parquet import PATHED

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
def test_neither_putting_aside_nor_reading_holds_the_whole(stored: Path, workers: int, tmp_path: Path) -> None:
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
    told = json.loads(done.stdout)
    assert told["total"] == IMAGES
    assert told["arrow"] < whole / 2
    assert told["traced"] < whole / 2
    assert told["spooled"] - told["opened"] < 0.75 * whole
    assert told["read"] - told["opened"] < 0.75 * whole
