"""A stream: the order of samples, its chunks and tasks, and the information given to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Labels = Sequence[int] | Ints

SHARED_ARGUMENTS = ("labels", "tasks", "chunk", "seed", "class_order", "boundaries", "announce")
"""The arguments of every protocol; all others are options of one protocol."""


@dataclass(frozen=True)
class Chunk:
    """Samples that arrive together, by their index in the training split."""

    indices: Ints
    task: int


@dataclass(frozen=True)
class Stream:
    """A complete stream. `task_classes[t]` are the class numbers of task t, in row order.

    Every class belongs to one task. In blurry streams some of its samples come earlier or later. Chunks are in order
    of time, so their `task` never decreases. `boundaries_told` and `classes_announced` say whether the learner is given
    the start of each task, and the classes of that task.
    """

    chunks: tuple[Chunk, ...]
    task_classes: tuple[tuple[int, ...], ...]
    boundaries_told: bool
    classes_announced: bool


@dataclass(frozen=True)
class TaskSummary:
    """One task in numbers; `foreign_share` is the fraction of its samples whose class belongs to another task."""

    samples: int
    chunks: int
    own_classes: int
    classes_present: int
    foreign_share: float


def summarise_tasks(stream: Stream, labels: Labels) -> tuple[TaskSummary, ...]:
    """The composition of each task.

    >>> from prol.data.streams import blurry
    >>> labels = [0] * 20 + [1] * 20
    >>> summarise_tasks(blurry(labels, tasks=2), labels)[0]
    TaskSummary(samples=20, chunks=2, own_classes=1, classes_present=2, foreign_share=0.1)
    """
    numbers = np.asarray(labels)
    summaries = []
    for task, own in enumerate(stream.task_classes):
        chunks = [numbers[chunk.indices] for chunk in stream.chunks if chunk.task == task]
        present = np.concatenate([numbers[:0], *chunks])
        foreign = float(np.mean(~np.isin(present, own))) if len(present) else 0.0
        summaries.append(TaskSummary(len(present), len(chunks), len(own), len(np.unique(present)), foreign))
    return tuple(summaries)


def class_presence(stream: Stream, labels: Labels, bins: int) -> Ints:
    """The number of samples of each class in each interval of time, `[classes, bins]`.

    Rows are sorted by task, and within a task in row order.

    Args:
        stream: any stream of these labels.
        labels: the class number of each training sample.
        bins: the number of intervals; their lengths differ by at most one sample.

    >>> from prol.data.streams import disjoint
    >>> labels = [0, 0, 0, 1, 1, 1]
    >>> class_presence(disjoint(labels, tasks=2), labels, bins=3).tolist()
    [[2, 1, 0], [0, 1, 2]]
    """
    order = np.concatenate([chunk.indices for chunk in stream.chunks])
    if not 1 <= bins <= len(order):
        raise ValueError(f"bins must be from 1 to the number of samples, {len(order)}, got {bins}")
    classes = np.array([number for group in stream.task_classes for number in group], dtype=np.int64)
    by_number = np.argsort(classes)
    rows = by_number[np.searchsorted(classes, np.asarray(labels)[order], sorter=by_number)]
    counts = np.zeros((len(classes), bins), dtype=np.int64)
    np.add.at(counts, (rows, np.arange(len(order)) * bins // len(order)), 1)
    return counts
