"""From files to a trained learner: is decoding or learning the limit?"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.bench.timing import Clock, Timed, waiting
from prol.data import Dataset, Loaded
from prol.data.prefetch import prefetched
from prol.learner import Learner

Row = dict[str, Any]
Pass = Callable[[], int]
"""Works through all chunks once; returns how many images there were."""


def files(
    dataset: Dataset,
    learner: Learner,
    chunk: int,
    images: int,
    workers: int,
    repeats: int,
    clock: Clock = time.perf_counter,
) -> list[Row]:
    """Images a second of decoding alone, of learning alone from memory, and of both at the same time.

    The same whole chunks of random training images each time, with all their classes announced. The first pass of
    each kind is not timed: it warms up the learner, and files are in the system's memory thereafter.
    """
    batches = _batches(dataset, chunk, images)
    split, names = dataset.train, dataset.class_names
    kept = [loaded for loaded in prefetched(split, batches, workers) if loaded.images]
    if not kept:
        raise ValueError(f"none of the first {images} images of {dataset.name} can be read")
    known = sorted({int(k) for loaded in kept for k in split.labels[loaded.indices]})
    learner.boundary([names[k] for k in known])
    wait = waiting(learner.backbone.device)

    def learn(loaded: Loaded) -> int:
        if loaded.images:
            learner.learn(loaded.images, [names[int(k)] for k in split.labels[loaded.indices]])
        return len(loaded.images)

    passes: dict[str, Pass] = {
        "decoding": lambda: sum(len(loaded.images) for loaded in prefetched(split, batches, workers)),
        "learning": lambda: sum(map(learn, kept)),
        "both": lambda: sum(map(learn, prefetched(split, batches, workers))),
    }
    for work in passes.values():
        work()
    seconds: dict[str, list[float]] = {what: [] for what in passes}
    count = sum(len(loaded.images) for loaded in kept)
    for _ in range(repeats):
        for what, work in passes.items():
            wait()
            start = clock()
            work()
            wait()
            seconds[what].append(clock() - start)
    return [{"what": what} | Timed(tuple(taken), 1).row(count) for what, taken in seconds.items()]


def limit(rows: list[Row]) -> Row:
    """Which of the two is slower, and how near both together come to it.

    >>> limit([{"images_per_second": 400.0}, {"images_per_second": 100.0}, {"images_per_second": 90.0}])
    {'limit': 'learning', 'share_of_limit': 0.9}
    """
    decoding, learning, both = (row["images_per_second"] for row in rows)
    slower = min(decoding, learning)
    return {"limit": "decoding" if decoding < learning else "learning", "share_of_limit": both / slower}


def _batches(dataset: Dataset, chunk: int, images: int) -> list[NDArray[np.int64]]:
    order = np.random.default_rng(0).permutation(len(dataset.train.labels))[:images]
    if len(order) < chunk:
        raise ValueError(f"{dataset.name} has {len(order)} training images, fewer than a chunk of {chunk}")
    return [order[start : start + chunk] for start in range(0, len(order) - chunk + 1, chunk)]
