"""Protocols in which classes recur: a class has most of its samples in one task and some in others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prol.data.streams.stream import ClassOrder, Ints, Labels, Stream, StreamBuilder


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

    Classes are split into tasks as by `disjoint`. Then `minor` percent of each class are distributed evenly over the
    other tasks, and every task is shuffled. At least one sample of each class stays in its major task.

    Other parameters are those of `disjoint`. The seed also selects the samples that leave their major task.

    Args:
        minor: percentage of each class outside its major task. Rounded so that the sum over all classes is exact to
            half a sample, and each class's number is its exact share rounded down or up.

    References:
        J. Bang et al. (2021). Rainbow Memory: Continual Learning with a Memory of Diverse Samples. CVPR.
        R. Aljundi et al. (2019). Gradient based sample selection for online continual learning. NeurIPS.

    >>> stream = blurry([0] * 20 + [1] * 20, tasks=2, chunk=20)
    >>> stream.task_classes
    ((0,), (1,))
    >>> [int((chunk.indices < 20).sum()) for chunk in stream.chunks]
    [18, 2]
    """
    return iblurry(
        labels,
        tasks=tasks,
        chunk=chunk,
        seed=seed,
        class_order=class_order,
        boundaries=boundaries,
        announce=announce,
        disjoint=0,
        minor=minor,
    )


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

    Classes are split into tasks as by the protocol `disjoint`. In each task the first ones, `disjoint` percent, occur
    there only; the others are blurry, and `minor` percent of their samples are distributed evenly over the other tasks.
    A class with fewer such samples than other tasks is absent from some of them. At least one sample always stays.

    Other parameters are those of the protocol `disjoint`. The seed also selects the samples that leave their major
    task.

    Args:
        disjoint: N of "i-Blurry-N-M": percentage of classes that come in one task only. Rounded so that the sum over
            all tasks is exact to half a class, and each task's number is its exact share rounded down or up.
        minor: M of "i-Blurry-N-M": percentage of each blurry class outside its major task, rounded in the same way.

    References:
        H. Koh et al. (2022). Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime
        Inference. ICLR.

    >>> stream = iblurry([0] * 20 + [1] * 20 + [2] * 20 + [3] * 20, tasks=2, chunk=40)
    >>> stream.task_classes
    ((0, 1), (2, 3))
    >>> [[int((chunk.indices // 20 == label).sum()) for label in range(4)] for chunk in stream.chunks]
    [[20, 18, 0, 2], [0, 2, 20, 18]]
    """
    _require_percents(disjoint=disjoint, minor=minor)
    builder = StreamBuilder(labels, tasks, chunk, seed, class_order, boundaries, announce)
    groups = np.array_split(builder.classes, tasks)
    alone = portions([len(group) for group in groups], disjoint)
    mixed = np.concatenate([group[count:] for group, count in zip(groups, alone, strict=True)])
    by_class = builder.samples_by_class(mixed)
    task_of = _spread_evenly(builder.own_tasks(groups), by_class, tasks, minor, builder.random)
    return builder.build(builder.shuffled(task_of), groups)


def siblurry(
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
    """Disjoint and blurry classes, their numbers in each task drawn at random.

    The disjoint classes are split into tasks at random positions, and so are the blurry ones; a task without any class
    takes one from the task with most. Then `minor` percent of all samples of blurry classes leave their task, each for
    another one drawn at random. At least one sample of each class always stays, so no task is empty.

    Other parameters are those of the protocol `disjoint`, but tasks differ in size. The tasks take the classes in their
    order, each its disjoint ones first.

    Args:
        disjoint: percentage of classes that come in one task only, rounded to the nearest class, halves up.
        minor: percentage of the blurry classes' samples outside their major task, rounded to the nearest sample, halves
            up. The numbers of single classes are random.

    References:
        J.-Y. Moon et al. (2023). Online Class Incremental Learning on Stochastic Blurry Task Boundary via Mask and
        Visual Prompt Tuning. ICCV.

    >>> stream = siblurry([0, 1, 2, 3, 4, 5, 6, 7] * 5, tasks=3, seed=3)
    >>> stream.task_classes
    ((0,), (1, 2, 3, 4, 5), (6, 7))
    >>> sum(len(chunk.indices) for chunk in stream.chunks)
    40
    """
    _require_percents(disjoint=disjoint, minor=minor)
    builder = StreamBuilder(labels, tasks, chunk, seed, class_order, boundaries, announce)
    count = len(builder.classes)
    alone = int(portions([count], disjoint)[0])
    numbers = np.stack([_random_sizes(kind, tasks, builder.random) for kind in (alone, count - alone)])
    _fill_empty_tasks(numbers)
    groups = np.split(builder.classes, np.cumsum(numbers.sum(axis=0))[:-1])
    mixed = np.concatenate([group[of_task:] for group, of_task in zip(groups, numbers[0], strict=True)])
    by_class = builder.samples_by_class(mixed)
    task_of = _scatter(builder.own_tasks(groups), by_class, tasks, minor, builder.random)
    return builder.build(builder.shuffled(task_of), groups)


def portions(sizes: Sequence[int] | Ints, percent: float) -> Ints:
    """The number to take of each size, such that all together are `percent` of the sum.

    Cumulative sums are rounded, halves up. So the sum is exact to one half, and each portion is its exact share rounded
    down or up.

    >>> portions([25, 25, 25, 25], 10).tolist()
    [3, 2, 3, 2]
    """
    totals: Ints = np.floor(np.cumsum([0, *sizes]) * percent / 100 + 0.5).astype(np.int64)
    return totals[1:] - totals[:-1]


def _require_percents(**shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 100:
            raise ValueError(f"{name} must be a percentage from 0 to 100, got {value}")


def _spread_evenly(
    task_of: Ints, samples: Sequence[Ints], tasks: int, minor: float, random: np.random.Generator
) -> Ints:
    """Moves `minor` percent of the samples of each class to the other tasks, round robin.

    `samples` are those of each blurry class. Each other task gets the same number of a class or one more. The round
    continues from class to class, so that the tasks receive equal numbers overall.
    """
    if tasks == 1:
        return task_of
    sizes = np.array([len(of_class) for of_class in samples], dtype=np.int64)
    circle = random.permutation(tasks)
    moved = 0
    for of_class, count in zip(samples, np.minimum(portions(sizes, minor), sizes - 1).tolist(), strict=True):
        others = circle[circle != task_of[of_class[0]]]
        task_of[random.permutation(of_class)[:count]] = others[(moved + np.arange(count)) % len(others)]
        moved += count
    return task_of


def _random_sizes(count: int, tasks: int, random: np.random.Generator) -> Ints:
    """Splits `count` into `tasks` sizes at random positions; some may be 0."""
    bounds = np.sort(random.integers(0, count + 1, size=tasks - 1))
    return np.diff(bounds, prepend=0, append=count)


def _fill_empty_tasks(numbers: Ints) -> None:
    """`numbers[kind, task]` of classes: each empty task takes one, of the kind that the largest task has more of."""
    for task in np.flatnonzero(numbers.sum(axis=0) == 0):
        largest = numbers.sum(axis=0).argmax()
        kind = numbers[:, largest].argmax()
        numbers[kind, largest] -= 1
        numbers[kind, task] += 1


def _scatter(task_of: Ints, samples: Sequence[Ints], tasks: int, minor: float, random: np.random.Generator) -> Ints:
    """Moves `minor` percent of all samples of the blurry classes, each to another task drawn independently."""
    if tasks == 1 or not samples:
        return task_of
    # The first of each class in a random order is the one that stays.
    free = np.concatenate([random.permutation(of_class)[1:] for of_class in samples])
    count = int(portions([len(free) + len(samples)], minor)[0])
    moved = random.permutation(free)[:count]
    task_of[moved] = (task_of[moved] + random.integers(1, tasks, size=len(moved))) % tasks
    return task_of
