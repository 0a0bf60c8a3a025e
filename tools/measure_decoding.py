"""Measures how fast images are decoded, against plain Pillow, all in one run and in turns.

    OMP_NUM_THREADS=1 python tools/measure_decoding.py [PATH] [--images N] [--repeats N] [--no-torch] [--out FILE.json]

PATH is a parquet file or a folder of images; without it JPEGs of 500 x 375 are generated. Encoded images are held in
memory, so that disks do not count. Each way decodes all of them, then the next, and so on again; the medians are
printed. "Per core" divides by the processor time of all threads, "per second" by the time on the clock.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from prol.data.base import Loaded
from prol.data.decoding import decode, decode_all
from prol.data.folder import is_image
from prol.data.prefetch import prefetched

WORKERS = (1, 2, 4)
BATCH = 64


@dataclass(frozen=True)
class InMemory:
    """Encoded images as a split."""

    encoded: list[bytes]

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.zeros(len(self.encoded), dtype=np.int64)

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        return decode_all(indices, lambda index: self.encoded[index], str)


def plain_pillow(data: bytes) -> NDArray[np.uint8]:
    """What most data loaders do."""
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def generated(count: int) -> list[bytes]:
    """Blobs of colour with grain, about as large as photographs of their size."""
    random = np.random.default_rng(0)
    images = []
    for _ in range(count):
        blobs = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375), 3)
        grain = random.integers(-12, 13, (375, 500, 3))
        picture = np.clip(np.asarray(blobs, dtype=np.int16) + grain, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=85)
        images.append(file.getvalue())
    return images


def read(place: Path | None, count: int) -> list[bytes]:
    """The first encoded images at a place."""
    if place is None:
        return generated(min(count, 200))
    if place.is_dir():
        files = sorted(path for path in place.rglob("*") if is_image(path.name))
        return [path.read_bytes() for path in files[:count]]
    images: list[bytes] = []
    for batch in pq.ParquetFile(place).iter_batches(batch_size=500, columns=["image"]):
        images += [row["bytes"] for row in batch.column(0).to_pylist()]
        if len(images) >= count:
            break
    return images[:count]


def ways(encoded: list[bytes]) -> dict[str, Callable[[], int]]:
    """Each way to decode all images; it returns how many it decoded."""
    split = InMemory(encoded)
    batches = np.array_split(np.arange(len(encoded)), max(1, len(encoded) // BATCH))

    def ahead(workers: int) -> int:
        return sum(len(loaded.images) for loaded in prefetched(split, batches, workers))

    threads = {f"prefetched, {workers} workers": lambda workers=workers: ahead(workers) for workers in WORKERS}
    return {
        "plain Pillow": lambda: sum(plain_pillow(data).ndim == 3 for data in encoded),
        "decode": lambda: sum(decode(data).ndim == 3 for data in encoded),
        **threads,
    }


def measure(encoded: list[bytes], repeats: int) -> dict[str, dict[str, float]]:
    """Medians of images a second, in turns so that a busy moment falls on all alike."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways(encoded)}
    for _ in range(repeats):
        for name, run in ways(encoded).items():
            processor, clock = time.process_time(), time.perf_counter()
            if run() != len(encoded):
                raise ValueError(f"{name} could not read all {len(encoded)} images: leave out those that are damaged")
            taken[name].append((time.process_time() - processor, time.perf_counter() - clock))
    rates = {
        name: [len(encoded) / statistics.median(column) for column in zip(*pairs, strict=True)]
        for name, pairs in taken.items()
    }
    of_pillow = rates["plain Pillow"]
    return {
        name: {
            "per_core": round(per_core, 1),
            "per_core_ratio": round(per_core / of_pillow[0], 3),
            "per_second": round(per_second, 1),
            "per_second_ratio": round(per_second / of_pillow[1], 3),
        }
        for name, (per_core, per_second) in rates.items()
    }


def versions(torch_used: bool) -> dict[str, str]:
    found = {"pillow": PIL.__version__, "numpy": np.__version__}
    if torch_used:
        import torch
        import torchvision

        found |= {"torch": torch.__version__, "torchvision": torchvision.__version__}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-torch", action="store_true", help="leave torch out, as where only images are looked at")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    encoded = read(given.path, given.images)
    content: dict[str, Any] = {
        "source": "generated" if given.path is None else "/".join(given.path.resolve().parts[-2:]),
        "mean_pixels": round(statistics.mean(decode(data).size / 3 for data in encoded)),
        "identical_to_plain_pillow": all(np.array_equal(decode(data), plain_pillow(data)) for data in encoded),
        "repeats": given.repeats,
        "processors": os.cpu_count(),
        "versions": versions(not given.no_torch),
        "images": len(encoded),
        "rates": measure(encoded, given.repeats),
    }
    for name, rate in content["rates"].items():
        print(
            f"{name:24} {rate['per_core']:9.1f} a core {rate['per_core_ratio']:6.2f}x"
            f" {rate['per_second']:9.1f} a second {rate['per_second_ratio']:6.2f}x"
        )
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
