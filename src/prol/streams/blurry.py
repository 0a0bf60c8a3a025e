"""Tasks that share all classes: most of a class comes in one task, a few samples in every other."""

from __future__ import annotations

import numpy as np

from prol.streams.assembly import (
    ClassOrder,
    Labels,
    assemble,
    draw,
    own_tasks,
    samples_by_class,
    shuffle_within_tasks,
)
from prol.streams.base import Stream
from prol.streams.mixing import check_percent, spread_evenly


def blurry(
    labels: Labels,
    *,
    tasks: int = 10,
    chunk: int = 10,
    seed: int = 0,
    class_order: ClassOrder = "label",
    boundaries: bool = False,
    announce: bool | None = None,
    minor: float = 10,
) -> Stream:
    """Each class has a major task; a few of its samples come in the other tasks.

    Classes are cut into tasks as by `disjoint`. Then `minor` percent of each class are dealt evenly to the other tasks,
    and every task is shuffled. One sample of each class always stays in its major task.

    Parameters
    ----------
    labels, tasks, chunk, seed, class_order
        As for `disjoint`. The seed also draws which samples leave their major task.
    boundaries
        Whether the learner is told that a task begins.
    announce
        Whether it is then also told the task's major classes; None means wherever boundaries are told.
    minor
        Percentage of each class outside its major task. Rounded so that the sum over all classes is right to half a
        sample, and each class's number is its exact share rounded down or up.

    References
    ----------
    J. Bang et al. (2021). Rainbow Memory: Continual Learning with a Memory of Diverse Samples. CVPR.
    R. Aljundi et al. (2019). Gradient based sample selection for online continual learning. NeurIPS.

    >>> stream = blurry([0] * 20 + [1] * 20, tasks=2, chunk=20)
    >>> stream.task_classes
    ((0,), (1,))
    >>> [int((chunk.indices < 20).sum()) for chunk in stream.chunks]
    [18, 2]
    """
    check_percent("minor", minor)
    drawn = draw(labels, tasks, chunk, seed, class_order)
    groups = np.array_split(drawn.classes, tasks)
    by_class = samples_by_class(drawn.numbers, drawn.classes)
    places = spread_evenly(own_tasks(drawn.numbers, groups), by_class, tasks, minor, drawn.of_places)
    samples = shuffle_within_tasks(places, tasks, drawn.of_samples)
    return assemble(samples, groups, chunk, boundaries, announce)
