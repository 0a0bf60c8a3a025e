"""Whether memory grows with the length of a stream: a whole run over generated images, its memory read as it goes.

    python tools/measure_memory.py --method ncm --images 100000 --out results/memory/ncm.json

The images are JPEGs in a parquet file, so that everything a run does is in it: reading, decoding, loading ahead,
learning, log and checkpoints.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from prol.evaluation import ChunkLearnt, Event, Measures
from prol.runs import Plan, start
from prol.runs.display import Silent

CLASSES, TESTED, READINGS, CHUNK, ROWS = 100, 2, 20, 10, 2000


def jpeg(index: int, seed: int) -> bytes:
    """A colour of its class, and noise of its own."""
    random = np.random.default_rng([seed, index])
    colour = np.random.default_rng([7, index % CLASSES]).integers(40, 216, 3)
    pixels = (colour + random.integers(-40, 40, (32, 32, 3))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=60)
    return file.getvalue()


def write_parquet(path: Path, images: int, seed: int) -> None:
    with pq.ParquetWriter(path, pa.schema([("image", pa.binary()), ("label", pa.string())])) as writer:
        for start_row in range(0, images, ROWS):
            rows = range(start_row, min(images, start_row + ROWS))
            labels = [f"class {row % CLASSES:03d}" for row in rows]
            writer.write_table(pa.table({"image": [jpeg(row, seed) for row in rows], "label": labels}))


def write_backbone(folder: Path) -> str:
    """Random weights of a ViT that sees 32 x 32 pixels; its name."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=0).half()
    save_file(model.state_dict(), folder / "small.safetensors")
    return f"vit_tiny_patch16_224@{folder / 'small.safetensors'}"


def memory_now() -> int:
    """Bytes of this process that are in memory and belong to it alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("this system does not tell a process its memory")


class Watch(Silent):
    """Reads the memory at equally spaced chunks."""

    def __init__(self, chunks: int) -> None:
        self.every, self.seen = max(1, chunks // READINGS), 0
        self.readings: list[dict[str, int]] = []

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        if isinstance(event, ChunkLearnt):
            self.seen += event.images
            if event.chunk % self.every == 0:
                self.readings.append({"images": self.seen, "bytes": memory_now()})
                print(f"{self.seen:>9} images  {memory_now() / 2**20:8.1f} MiB", file=sys.stderr, flush=True)


def measure(method: str, images: int) -> dict[str, Any]:
    """Memory at equally spaced points of one run over `images` generated images."""
    watch = Watch(images // CHUNK)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_parquet(folder / "train.parquet", images, seed=1)
        write_parquet(folder / "test.parquet", CLASSES * TESTED, seed=2)
        plan = Plan(
            method,
            "parquet",
            backbone=write_backbone(folder),
            device="cpu",
            data=place,
            chunk=CHUNK,
            measures=Measures(prequential=True),
            workers=1,
        )
        run = start(plan, folder / "run", watch)
        faa = run.read(run.result)["metrics"]["faa"]
    # The first tenth fills caches and meets the first classes.
    first, last = watch.readings[len(watch.readings) // 10]["bytes"], watch.readings[-1]["bytes"]
    return {
        "method": method,
        "images": images,
        "readings": watch.readings,
        "growth_from_a_tenth_to_the_end_bytes": last - first,
        "growth_per_image_bytes": (last - first) / (0.9 * images),
        "faa": faa,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="ncm")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    measured = measure(arguments.method, arguments.images)
    print(f"from a tenth of the stream to its end: {measured['growth_per_image_bytes']:.1f} bytes an image")
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
