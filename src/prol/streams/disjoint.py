"""Tasks with classes of their own: a class appears in one task and never again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prol.streams.base import Chunk, Stream

ClassOrder = Literal["label", "shuffled"]


def disjoint(
    labels: Sequence[int] | NDArray[np.int64],
    *,
    tasks: int = 10,
    chunk: int = 10,
    seed: int = 0,
    class_order: ClassOrder = "label",
    boundaries: bool = True,
    announce: bool = True,
    drop_surplus: bool = False,
) -> Stream:
    """Cuts the classes into tasks, shuffles the samples of each task, and cuts them into chunks.

    Parameters
    ----------
    labels
        The class number of each training sample.
    tasks
        How many tasks. Where it does not divide the number of classes, the first tasks get one class more.
    chunk
        How many samples arrive together; the last chunk of a task may be smaller.
    seed
        Draws the order of samples and, apart from it, the order of classes.
    class_order
        "label" takes the classes by number, "shuffled" in an order drawn by the seed.
    boundaries
        Whether the learner is told that a task begins.
    announce
        Whether it is then also told the classes of the task.
    drop_surplus
        Gives every task the same number of classes and leaves the rest out of the stream.

    >>> stream = disjoint([0, 1, 2, 2, 1, 0], tasks=2, chunk=3)
    >>> stream.task_classes
    ((0, 1), (2,))
    >>> [(chunk.task, len(chunk.indices)) for chunk in stream.chunks]
    [(0, 3), (0, 1), (1, 2)]
    """
    numbers = _class_numbers(labels)
    classes = np.unique(numbers)
    if not 1 <= tasks <= len(classes):
        raise ValueError(f"tasks must be from 1 to the number of classes, {len(classes)}, got {tasks}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    if class_order not in ("label", "shuffled"):
        raise ValueError(f"unknown class_order {class_order!r}: use 'label' or 'shuffled'")
    if announce and not boundaries:
        raise ValueError(
            "announce=True needs boundaries=True: classes are announced when a task begins; set announce=False"
        )

    # Two generators, so that shuffling the classes does not change what the sample order draws.
    of_classes, of_samples = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    if class_order == "shuffled":
        classes = of_classes.permutation(classes)
    groups = _task_classes(classes, tasks, drop_surplus)
    chunks: list[Chunk] = []
    for task, group in enumerate(groups):
        samples = of_samples.permutation(np.flatnonzero(np.isin(numbers, group)))
        chunks += [Chunk(samples[i : i + chunk], task) for i in range(0, len(samples), chunk)]
    return Stream(
        chunks=tuple(chunks),
        task_classes=tuple(tuple(group.tolist()) for group in groups),
        boundaries_told=boundaries,
        classes_announced=announce,
    )


def _class_numbers(labels: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    numbers = np.asarray(labels)
    if numbers.size == 0:
        raise ValueError("labels are empty: a stream needs at least one sample")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"labels must be one row of class numbers, got {numbers.dtype} of shape {numbers.shape}")
    return numbers.astype(np.int64)


def _task_classes(classes: NDArray[np.int64], tasks: int, drop_surplus: bool) -> list[NDArray[np.int64]]:
    """Consecutive groups; of two sizes that differ by one, the larger come first."""
    if drop_surplus:
        classes = classes[: len(classes) // tasks * tasks]
    return np.array_split(classes, tasks)
