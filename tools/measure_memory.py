"""Whether memory grows with the length of a stream: generated images through a run, its memory read as it goes.

python tools/measure_memory.py --method prol --images 100000 --out results/memory/prol.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

import prol
from prol.datasets import Dataset, Loaded
from prol.evaluation import ChunkLearnt, Finished, Measures, run_stream
from prol.streams import disjoint

CLASSES, TESTED, READINGS = 100, 2, 20


class Generated:
    """Images made when they are asked for, each from its own number: a colour of its class, and noise."""

    def __init__(self, count: int, seed: int) -> None:
        self.seed = seed
        self.labels: NDArray[np.int64] = np.arange(count, dtype=np.int64) % CLASSES

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        return Loaded([self._draw(int(index)) for index in wanted], wanted)

    def _draw(self, index: int) -> NDArray[np.uint8]:
        random = np.random.default_rng([self.seed, index])
        colour = np.random.default_rng([7, int(self.labels[index])]).integers(40, 216, 3)
        noise: NDArray[np.uint8] = (colour + random.integers(-40, 40, (32, 32, 3))).astype(np.uint8)
        return noise


def memory_now() -> int:
    """Bytes of this process that are in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("this system does not tell a process its memory")


def small_backbone(folder: str) -> str:
    """Random weights of a ViT that sees 32 x 32 pixels."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=0).half()
    save_file(model.state_dict(), f"{folder}/small.safetensors")
    return f"vit_tiny_patch16_224@{folder}/small.safetensors"


def measure(method: str, images: int) -> dict[str, object]:
    """Memory at equally spaced points of one run over `images` generated images."""
    train, test = Generated(images, seed=1), Generated(CLASSES * TESTED, seed=2)
    dataset = Dataset("generated", tuple(f"class {i}" for i in range(CLASSES)), train, test)
    stream = disjoint(train.labels, tasks=10, chunk=10)
    with tempfile.TemporaryDirectory() as folder:
        learner = prol.create(method, small_backbone(folder), device="cpu")
    readings: list[dict[str, int]] = []
    every = max(1, len(stream.chunks) // READINGS)
    seen, last = 0, None
    for last in run_stream(learner, dataset, stream, measures=Measures(prequential=True), workers=1):
        if isinstance(last, ChunkLearnt):
            seen += last.images
            if last.chunk % every == 0:
                readings.append({"images": seen, "bytes": memory_now()})
                print(f"{seen:>9} images  {readings[-1]['bytes'] / 2**20:8.1f} MiB", file=sys.stderr, flush=True)
    assert isinstance(last, Finished)
    first, end = readings[len(readings) // 10]["bytes"], readings[-1]["bytes"]
    return {
        "method": method,
        "images": images,
        "readings": readings,
        "growth_from_a_tenth_to_the_end_bytes": end - first,
        "growth_per_image_bytes": (end - first) / (0.9 * images),
        "faa": last.result.metrics.faa,
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
