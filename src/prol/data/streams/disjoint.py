"""Protocols in which each class appears in one task and never again."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from prol.data.streams.stream import LEFT_OUT, ClassOrder, Labels, Stream, StreamBuilder


def disjoint(
    labels: Labels,
    *,
    tasks: int = 10,
    chunk: int = 10,
    seed: int = 0,
    class_order: ClassOrder = "label",
    boundaries: bool = True,
    announce: bool | None = None,
    drop_surplus: bool = False,
) -> Stream:
    """Each class comes in one task only.

    The classes are split into tasks; the samples of each task are shuffled and divided into chunks.

    Args:
        labels: the class number of each training sample.
        tasks: the number of tasks. If it does not divide the number of classes, the first tasks get one class more.
        chunk: the number of samples that arrive together; the last chunk of a task may be smaller.
        seed: seed of the sample order and, independently, of the class order.
        class_order: "label" sorts the classes by number, "shuffled" by the seed.
        boundaries: whether the learner is given the start of each task.
        announce: whether it is also given the classes of the task then; None means the value of `boundaries`.
        drop_surplus: gives every task the same number of classes and drops the remaining classes.

    >>> stream = disjoint([0, 1, 2, 2, 1, 0], tasks=2, chunk=3)
    >>> stream.task_classes
    ((0, 1), (2,))
    >>> [(chunk.task, len(chunk.indices)) for chunk in stream.chunks]
    [(0, 3), (0, 1), (1, 2)]
    """
    builder = StreamBuilder(labels, tasks, chunk, seed, class_order, boundaries, announce)
    classes = builder.classes
    if drop_surplus:
        classes = classes[: len(classes) // tasks * tasks]
    groups = np.array_split(classes, tasks)
    return builder.build(builder.shuffled(builder.own_tasks(groups)), groups)


def imbalanced(
    labels: Labels,
    *,
    tasks: int = 10,
    chunk: int = 10,
    seed: int = 0,
    class_order: ClassOrder = "label",
    boundaries: bool = True,
    announce: bool | None = None,
    ratio: float = 100,
    ranks: Literal["shuffled", "label"] = "shuffled",
) -> Stream:
    """Disjoint tasks whose class sizes decrease exponentially; the other samples are dropped.

    Of C classes, the one of rank r = 0 .. C - 1 with n samples contributes n ratio^(-r / (C - 1)) of them, rounded to
    the nearest sample, halves up, and at least one. The selected samples are ordered as by `disjoint`.

    Other parameters are those of `disjoint`. The seed also selects the samples.

    Args:
        ratio: size of the largest class over that of the smallest, if all classes have the same size in the data set.
        ranks: which classes stay large: "shuffled" ranks them by the seed, "label" by number, independently of
            `class_order`.

    References:
        Y. Cui et al. (2019). Class-Balanced Loss Based on Effective Number of Samples. CVPR.

    >>> stream = imbalanced([0] * 100 + [1] * 100 + [2] * 100, tasks=3, chunk=100, ranks="label")
    >>> [len(chunk.indices) for chunk in stream.chunks]
    [100, 10, 1]
    """
    if not 1 <= ratio < math.inf:
        raise ValueError(f"ratio must be a number of at least 1, largest class over smallest, got {ratio}")
    if ranks not in ("shuffled", "label"):
        raise ValueError(f"unknown ranks {ranks!r}: use 'shuffled' or 'label'")
    builder = StreamBuilder(labels, tasks, chunk, seed, class_order, boundaries, announce)
    groups = np.array_split(builder.classes, tasks)
    ranked = np.sort(builder.classes)
    if ranks == "shuffled":
        ranked = builder.random.permutation(ranked)
    task_of = builder.own_tasks(groups)
    for rank, of_class in enumerate(builder.samples_by_class(ranked)):
        share = ratio ** (-rank / max(1, len(ranked) - 1))
        count = max(1, math.floor(len(of_class) * share + 0.5))
        task_of[builder.random.permutation(of_class)[count:]] = LEFT_OUT
    return builder.build(builder.shuffled(task_of), groups)
