"""Looking at a stream: which classes come when, and what each task is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prol.streams.assembly import Ints, Labels
from prol.streams.base import Stream


@dataclass(frozen=True)
class TaskSummary:
    """One task in numbers; `foreign_share` is the part of its samples whose class belongs to another task."""

    samples: int
    chunks: int
    own_classes: int
    classes_present: int
    foreign_share: float


def class_presence(stream: Stream, labels: Labels, bins: int) -> Ints:
    """How many samples of each class come in each stretch of time, `[classes, bins]`.

    Rows are the classes by task, and within a task in row order.

    Parameters
    ----------
    stream
        Any stream of these labels.
    labels
        The class number of each training sample.
    bins
        Into how many stretches the stream is cut; they are equally long to a sample.

    >>> from prol.streams import disjoint
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


def summarise_tasks(stream: Stream, labels: Labels) -> tuple[TaskSummary, ...]:
    """What each task is made of.

    >>> from prol.streams import blurry
    >>> labels = [0] * 20 + [1] * 20
    >>> summarise_tasks(blurry(labels, tasks=2), labels)[0]
    TaskSummary(samples=20, chunks=2, own_classes=1, classes_present=2, foreign_share=0.1)
    """
    numbers = np.asarray(labels)
    summaries = []
    for task, own in enumerate(stream.task_classes):
        chunks = [numbers[chunk.indices] for chunk in stream.chunks if chunk.task == task]
        met = np.concatenate([numbers[:0], *chunks])
        foreign = float(np.mean(~np.isin(met, own))) if len(met) else 0.0
        summaries.append(TaskSummary(len(met), len(chunks), len(own), len(np.unique(met)), foreign))
    return tuple(summaries)
