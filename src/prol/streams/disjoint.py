"""Tasks with classes of their own: a class appears in one task and never again."""

from __future__ import annotations

import numpy as np

from prol.streams.assembly import ClassOrder, Labels, assemble, draw, own_tasks, shuffle_within_tasks
from prol.streams.base import Stream


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

    The classes are cut into tasks; the samples of each task are shuffled and cut into chunks.

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
        Whether it is then also told the classes of the task; None means wherever boundaries are told.
    drop_surplus
        Gives every task the same number of classes and leaves the rest out of the stream.

    >>> stream = disjoint([0, 1, 2, 2, 1, 0], tasks=2, chunk=3)
    >>> stream.task_classes
    ((0, 1), (2,))
    >>> [(chunk.task, len(chunk.indices)) for chunk in stream.chunks]
    [(0, 3), (0, 1), (1, 2)]
    """
    drawn = draw(labels, tasks, chunk, seed, class_order)
    classes = drawn.classes
    if drop_surplus:
        classes = classes[: len(classes) // tasks * tasks]
    groups = np.array_split(classes, tasks)
    places = own_tasks(drawn.numbers, groups)
    samples = shuffle_within_tasks(places, tasks, drawn.of_samples)
    return assemble(samples, groups, chunk, boundaries, announce)
