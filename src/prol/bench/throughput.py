"""Throughput: images per second of learning and prediction, also for many classes, and from image files on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from prol.backbones import Backbone
from prol.backbones.base import PLAIN
from prol.bench.machine import PeakMemory
from prol.bench.timing import Clock, Pace, Step, Timed, measure, one_line, row_of, synchronizer
from prol.bench.workload import CHUNKS, MethodSpec, Workload, free, prediction_step, training_step
from prol.data import Dataset, Loaded
from prol.data.prefetch import prefetched
from prol.learner import Learner

Row = dict[str, Any]

REFERENCE_CLASSES = 100
_COUNTED_STEPS = 3


def speed(
    methods: Sequence[MethodSpec],
    backbone: Backbone,
    chunks: Sequence[int],
    batches: Sequence[int],
    workload: Workload,
    pace: Pace,
    peak: float | None = None,
) -> Iterator[Row]:
    """For each method, one row per chunk size and one per batch size.

    A row whose step fails holds the error instead of times, and the others continue.

    Args:
        peak: operations per second that the device can reach; rows then contain the share of it that they reach.
    """

    def row_for(method: MethodSpec, what: str, images: int) -> Row:
        chunk = images if what == "train" else chunks[0]

        def make() -> Step:
            learner = method.learner(backbone, chunk)
            workload.announce(learner)
            step = training_step(learner, workload.chunks(chunk, learner.preprocessing.size))
            if what == "train":
                return step
            step()  # some methods cannot predict before they have learnt
            return prediction_step(learner, workload.chunks(images, learner.preprocessing.size))

        free(backbone.device)
        result = measure({what: make}, pace, synchronizer(backbone.device))[what]
        row: Row = {"method": method.name, "what": what} | row_of(result, images)
        if peak is None or "error" in row:
            return row
        flop = count_operations(make, backbone) / images
        return row | {"flop_per_image": flop, "share_of_peak": flop * row["images_per_second"] / peak}

    for method in methods:  # invalid options are refused before anything is timed
        method.resolved(chunks[0])
    for method in methods:
        if backbone.device.type == "cuda":
            torch.compiler.reset()  # torch caches a limited number of compiled shapes: each method starts empty
        yield from (row_for(method, "train", chunk) for chunk in chunks)
        yield from (row_for(method, "predict", batch) for batch in batches)


def count_operations(make: Callable[[], Step], backbone: Backbone) -> int:
    """Floating-point operations of one step in matrix products, convolutions and attention, as torch counts them.

    Steps are made operation by operation, with attention as two products: its counter sees neither compiled nor
    captured operations, and does not know every kind of fused attention. The least of a few steps counts, after every
    chunk was learnt once: now and then a step also predicts its chunk first, to calibrate probabilities.
    """
    before, backbone.acceleration = backbone.acceleration, PLAIN
    counts = []
    try:
        step = make()
        for _ in range(CHUNKS):
            step()
        for _ in range(_COUNTED_STEPS):
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                step()
            counts.append(int(counter.get_total_flops()))
    finally:
        backbone.acceleration = before
    return min(counts)


def growth(
    method: MethodSpec, backbone: Backbone, classes: Sequence[int], chunk: int, batch: int, pace: Pace
) -> Iterator[Row]:
    """One row for each number of classes, in increasing order: a step, a prediction, and the peak memory of both.

    Every learner is in its second task, see `Workload`. A row that fails holds the error.
    """
    method.resolved(chunk)
    for number in sorted(set(classes)):
        free(backbone.device)
        row, workload = {"method": method.name, "classes": number}, Workload(number)
        try:
            learner = method.learner(backbone, chunk)
            workload.announce(learner)
        except RuntimeError as error:
            yield row | {"error": one_line(error)}
            continue
        yield row | _growth_row(learner, workload, chunk, batch, pace)
        del learner


def _growth_row(learner: Learner, workload: Workload, chunk: int, batch: int, pace: Pace) -> Row:
    device, size = learner.backbone.device, learner.preprocessing.size
    memory = PeakMemory(device)  # includes the tables, which exist, and what a step allocates
    makers = {
        "train": lambda: training_step(learner, workload.chunks(chunk, size)),
        "predict": lambda: prediction_step(learner, workload.chunks(batch, size)),
    }
    # One after the other, so that a GPU never holds the memory of both.
    found = {what: measure({what: make}, pace, synchronizer(device))[what] for what, make in makers.items()}
    for result in found.values():
        if isinstance(result, str):
            return {"error": result}
    row: Row = {what: row_of(found[what], images) for what, images in (("train", chunk), ("predict", batch))}
    return row | {"memory_bytes": memory.read(), "memory": memory.kind}


def with_growth_ratios(rows: Sequence[Row]) -> list[Row]:
    """Adds times relative to those with 100 classes, or to the first row if none has 100."""
    timed = [row for row in rows if "error" not in row]
    base = next((row for row in timed if row["classes"] == REFERENCE_CLASSES), timed[0] if timed else None)
    if base is None:
        return list(rows)
    return [
        row
        if "error" in row
        else row | {f"{what}_ratio": row[what]["median"] / base[what]["median"] for what in ("train", "predict")}
        for row in rows
    ]


def files(
    dataset: Dataset,
    learner: Learner,
    chunk: int,
    images: int,
    workers: int,
    repeats: int,
    clock: Clock = time.perf_counter,
) -> list[Row]:
    """Images per second of decoding alone, of learning alone from memory, and of both at the same time.

    Each pass uses the same full chunks of random training images, with all their classes announced. The first pass of
    each kind is not timed: it warms up the learner and the file cache of the system.
    """
    batches = _batches(dataset, chunk, images)
    split, names = dataset.train, dataset.class_names
    in_memory = [loaded for loaded in prefetched(split, batches, workers) if loaded.images]
    if not in_memory:
        raise ValueError(f"none of the first {images} images of {dataset.name} can be read")
    known = sorted({int(k) for loaded in in_memory for k in split.labels[loaded.indices]})
    learner.boundary([names[k] for k in known])
    synchronize = synchronizer(learner.backbone.device)

    def learn(loaded: Loaded) -> int:
        if loaded.images:
            learner.learn(loaded.images, [names[int(k)] for k in split.labels[loaded.indices]])
        return len(loaded.images)

    passes: dict[str, Callable[[], int]] = {
        "decoding": lambda: sum(len(loaded.images) for loaded in prefetched(split, batches, workers)),
        "learning": lambda: sum(map(learn, in_memory)),
        "both": lambda: sum(map(learn, prefetched(split, batches, workers))),
    }
    for run in passes.values():
        run()
    seconds: dict[str, list[float]] = {what: [] for what in passes}
    count = sum(len(loaded.images) for loaded in in_memory)
    for _ in range(repeats):
        for what, run in passes.items():
            synchronize()
            start = clock()
            run()
            synchronize()
            seconds[what].append(clock() - start)
    return [{"what": what} | Timed(tuple(taken), 1).row(count) for what, taken in seconds.items()]


def limit(rows: list[Row]) -> Row:
    """The slower of the two, and which share of its speed both together reach.

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
