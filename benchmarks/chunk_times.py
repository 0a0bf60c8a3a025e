"""How long chunks of ten images take, and the first prediction after one, by the number of classes.

    python benchmarks/chunk_times.py --classes 40 2000 --out results/chunk_times/small.json

Images are noise of the network's size: what is measured does not depend on what they show. Each class is learnt once in
large chunks, then chunks of ten are timed. A chunk is due when the learner calibrates itself on it. "followed" is a
prediction of a new learner in the present state that takes over what the state ten chunks ago had solved, as the
service does after each update. Every number of classes has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shlex
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import prol
from prol.bench.machine import PeakMemory, document

CHUNK, FILL = 10, 500


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--method", default="prol_plus")
    parser.add_argument("--backbone", default="small")
    parser.add_argument("--option", nargs="*", default=["adapt_steps=0"], help="options of the method, name=value")
    parser.add_argument("--classes", type=int, nargs="+", default=[40, 2000])
    parser.add_argument("--chunks", type=int, default=100, help="that are timed")
    parser.add_argument("--every", type=int, default=10, help="chunks between predictions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    content = document("chunk_times", torch.device(given.device), command, settings)
    spawn = multiprocessing.get_context("spawn")
    for classes in given.classes:
        with ProcessPoolExecutor(1, mp_context=spawn) as alone:
            content["rows"].append(alone.submit(measure, classes, given).result())
        print(json.dumps(content["rows"][-1]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def measure(classes: int, given: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(given.threads)
    memory = PeakMemory(torch.device(given.device))
    options = dict(option.split("=", 1) for option in given.option)
    learner = prol.create(given.method, given.backbone, device=given.device, **options)
    random, size = np.random.default_rng(0), learner.backbone.preprocessing.size

    def images(count: int) -> torch.Tensor:
        return torch.from_numpy(random.integers(0, 256, (count, 3, size, size), dtype=np.uint8))

    for first in range(0, classes, FILL):
        names = list(range(first, min(first + FILL, classes)))
        learner.learn(images(len(names)), names)
    one, earlier = images(1), learner.clone()
    learner.predict(one), earlier.classify(one)
    chunks: dict[bool, list[float]] = {False: [], True: []}
    after: dict[str, list[float]] = {"prediction": [], "probabilities": [], "next": [], "followed": []}
    for number in range(given.chunks):
        pixels, names = images(CHUNK), random.integers(0, classes, CHUNK).tolist()
        due = learner.calibration.due
        chunks[due].append(seconds(lambda: learner.learn(pixels, names)))  # noqa: B023
        if number % given.every == given.every - 1:
            after["prediction"].append(seconds(lambda: learner.predict(one)))
            after["probabilities"].append(seconds(lambda: learner.classify(one)))
            after["next"].append(seconds(lambda: learner.classify(one)))
            twin = learner.clone()
            after["followed"].append(seconds(lambda: (twin.follow(earlier), twin.classify(one))))  # noqa: B023
            earlier = learner.clone()
            earlier.classify(one)
    every = chunks[False] + chunks[True]
    return {
        "classes": classes,
        "images": classes + CHUNK * given.chunks,
        "chunk_seconds": {
            "median": float(np.median(every)),
            "p99": float(np.quantile(every, 0.99)),
            "longest": max(every),
            "median_due": float(np.median(chunks[True])) if chunks[True] else None,
            "due": len(chunks[True]),
        },
        "seconds_after_a_chunk": {name: float(np.median(times)) for name, times in after.items()},
        "peak_bytes": memory.read(),
    }


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
