"""Some classes in one task only, the others in every task: new classes come, and old ones come back."""

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
from prol.streams.mixing import check_percent, portions, spread_evenly


def iblurry(
    labels: Labels,
    *,
    tasks: int = 10,
    chunk: int = 10,
    seed: int = 0,
    class_order: ClassOrder = "label",
    boundaries: bool = False,
    announce: bool | None = None,
    disjoint: float = 50,
    minor: float = 10,
) -> Stream:
    """Some classes are disjoint; the others are blurry and come in every task.

    Classes are cut into tasks as by the protocol `disjoint`. In each task the first ones, `disjoint` percent, stay
    there alone; the rest are blurry, and `minor` percent of their samples are dealt evenly to the other tasks. A class
    with fewer samples to deal than other tasks misses some of them. One sample always stays.

    Parameters
    ----------
    labels, tasks, chunk, seed, class_order
        As for the protocol `disjoint`. The seed also draws which samples leave their major task.
    boundaries
        Whether the learner is told that a task begins.
    announce
        Whether it is then also told the task's own classes, disjoint and blurry; None means wherever boundaries are
        told.
    disjoint
        N of "i-Blurry-N-M": percentage of classes that come in one task only. Rounded so that the sum over all tasks is
        right to half a class, and each task's number is its exact share rounded down or up.
    minor
        M of "i-Blurry-N-M": percentage of each blurry class outside its major task, rounded in the same way.

    References
    ----------
    H. Koh et al. (2022). Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime
    Inference. ICLR.

    >>> stream = iblurry([0] * 20 + [1] * 20 + [2] * 20 + [3] * 20, tasks=2, chunk=40)
    >>> stream.task_classes
    ((0, 1), (2, 3))
    >>> [[int((chunk.indices // 20 == label).sum()) for label in range(4)] for chunk in stream.chunks]
    [[20, 18, 0, 2], [0, 2, 20, 18]]
    """
    check_percent("disjoint", disjoint)
    check_percent("minor", minor)
    drawn = draw(labels, tasks, chunk, seed, class_order)
    groups = np.array_split(drawn.classes, tasks)
    alone = portions([len(group) for group in groups], disjoint)
    mixed = np.concatenate([group[count:] for group, count in zip(groups, alone, strict=True)])
    by_class = samples_by_class(drawn.numbers, mixed)
    places = spread_evenly(own_tasks(drawn.numbers, groups), by_class, tasks, minor, drawn.of_places)
    samples = shuffle_within_tasks(places, tasks, drawn.of_samples)
    return assemble(samples, groups, chunk, boundaries, announce)
