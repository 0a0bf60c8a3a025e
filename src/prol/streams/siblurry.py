"""Disjoint and blurry classes in numbers left to chance: no two tasks are alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prol.streams.assembly import (
    ClassOrder,
    Ints,
    Labels,
    assemble,
    draw,
    own_tasks,
    samples_by_class,
    shuffle_within_tasks,
)
from prol.streams.base import Stream
from prol.streams.mixing import check_percent, portions


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

    How many disjoint classes each task has is drawn by cutting their row at random places, and so for the blurry ones;
    a task that gets no class at all takes one from the task with most. Then `minor` percent of all samples of blurry
    classes leave their task, each for another one drawn at random. One sample of each class always stays, so no task is
    empty.

    Parameters
    ----------
    labels, tasks, chunk, seed, class_order
        As for the protocol `disjoint`, but tasks differ in size. The tasks take the classes in their order, each
        its disjoint ones first.
    boundaries
        Whether the learner is told that a task begins.
    announce
        Whether it is then also told the task's own classes, disjoint and blurry; None means wherever boundaries are
        told.
    disjoint
        Percentage of classes that come in one task only, to the nearest class, halves up.
    minor
        Percentage of the blurry classes' samples outside their major task, to the nearest sample, halves up. The
        numbers of single classes are left to chance.

    References
    ----------
    J.-Y. Moon et al. (2023). Online Class Incremental Learning on Stochastic Blurry Task Boundary via Mask and Visual
    Prompt Tuning. ICCV.

    >>> stream = siblurry([0, 1, 2, 3, 4, 5, 6, 7] * 5, tasks=3, seed=3)
    >>> stream.task_classes
    ((0,), (1, 2, 3, 4, 5), (6, 7))
    >>> sum(len(chunk.indices) for chunk in stream.chunks)
    40
    """
    check_percent("disjoint", disjoint)
    check_percent("minor", minor)
    drawn = draw(labels, tasks, chunk, seed, class_order)
    count = len(drawn.classes)
    alone = int(portions([count], disjoint)[0])
    numbers = _without_empty_tasks(
        np.stack([_cut_at_random(kind, tasks, drawn.of_places) for kind in (alone, count - alone)])
    )
    groups = np.split(drawn.classes, np.cumsum(numbers.sum(axis=0))[:-1])
    mixed = np.concatenate([group[of_task:] for group, of_task in zip(groups, numbers[0], strict=True)])
    by_class = samples_by_class(drawn.numbers, mixed)
    places = _scatter(own_tasks(drawn.numbers, groups), by_class, tasks, minor, drawn.of_places)
    samples = shuffle_within_tasks(places, tasks, drawn.of_samples)
    return assemble(samples, groups, chunk, boundaries, announce)


def _cut_at_random(count: int, tasks: int, random: np.random.Generator) -> Ints:
    """How many of a row of `count` lie in each of `tasks` pieces, some perhaps empty."""
    cuts = np.sort(random.integers(0, count + 1, size=tasks - 1))
    return np.diff(cuts, prepend=0, append=count)


def _without_empty_tasks(numbers: Ints) -> Ints:
    """`numbers[kind, task]` of classes: each empty task takes one, of the kind that the richest task has more of."""
    numbers = numbers.copy()
    for task in np.flatnonzero(numbers.sum(axis=0) == 0):
        richest = numbers.sum(axis=0).argmax()
        kind = numbers[:, richest].argmax()
        numbers[kind, richest] -= 1
        numbers[kind, task] += 1
    return numbers


def _scatter(places: Ints, samples: Sequence[Ints], tasks: int, minor: float, random: np.random.Generator) -> Ints:
    """New places: `minor` percent of the classes' samples go to another task, each drawn on its own."""
    places = places.copy()
    if tasks == 1 or not samples:
        return places
    # The first of each class in a drawn order is the one that stays.
    free = np.concatenate([random.permutation(of_class)[1:] for of_class in samples])
    count = int(portions([len(free) + len(samples)], minor)[0])
    moved = random.permutation(free)[:count]
    places[moved] = (places[moved] + random.integers(1, tasks, size=len(moved))) % tasks
    return places
