"""What a checkpoint of each method costs, in bytes and in time, and how much of it the one before already held.

    python tools/measure_checkpoints.py --out results/checkpoints/builtin.json

Noise in place of images: tasks of equal size are announced, a few chunks of each are learnt. The last two checkpoints
lie `--every` chunks apart, in the last task.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import prol
from prol import registry
from prol.backbones import Backbone, open_backbone
from prol.learner import Learner
from prol.runs.checkpoints import Checkpoints


def bytes_of(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def learn(learner: Learner, classes: range, chunks: int, draw: torch.Generator) -> float:
    """Seconds of a chunk of ten images, their median."""
    seconds = []
    for _ in range(chunks):
        images = torch.randint(0, 256, (10, 3, 64, 64), generator=draw, dtype=torch.uint8)
        labels = torch.randint(classes.start, classes.stop, (10,), generator=draw)
        began = time.perf_counter()
        learner.learn(images, labels)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def measure(method: str, backbone: Backbone, classes: int, tasks: int, every: int) -> dict[str, Any]:
    learner, draw, each = prol.create(method, backbone), torch.Generator().manual_seed(0), classes // tasks
    for task in range(tasks):
        own = range(task * each, (task + 1) * each)
        learner.boundary(list(own))
        learn(learner, own, 2, draw)
    before, _ = learner.state()
    step = learn(learner, own, every, draw)
    began = time.perf_counter()
    tensors, meta = learner.state()
    copied = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        Checkpoints(Path(place)).write(1, tensors, {"learner": meta})
        written = time.perf_counter()
        size = sum(path.stat().st_size for path in Path(place).iterdir())
    same = [tensor for name, tensor in tensors.items() if name in before and torch.equal(before[name], tensor)]
    return {
        "method": method,
        "backbone": backbone.name,
        "classes": classes,
        "tasks": tasks,
        "every": every,
        "bytes": size,
        "unchanged_bytes": bytes_of(same),
        "copy_seconds": copied - began,
        "write_seconds": written - copied,
        "step_seconds": step,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "methods",
        nargs="*",
        default=sorted(name for name in registry.names("methods") if not registry.method(name).from_scratch),
    )
    parser.add_argument("--backbone", default="vit_tiny_patch8_64.tiny_imagenet")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    backbone, rows = open_backbone(arguments.backbone, device="cpu"), []
    print("method         MB  unchanged MB  copy ms  write ms  step ms")
    for method in arguments.methods:
        row = measure(method, backbone, arguments.classes, arguments.tasks, arguments.every)
        rows.append(row)
        print(
            f"{method:12} {row['bytes'] / 1e6:6.1f} {row['unchanged_bytes'] / 1e6:13.2f} "
            f"{1e3 * row['copy_seconds']:8.0f} {1e3 * row['write_seconds']:9.0f} {1e3 * row['step_seconds']:8.0f}",
            flush=True,
        )
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
