"""One group of classes hands over to the next little by little: there is no moment at which a task begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prol.streams.assembly import (
    ClassOrder,
    Labels,
    assemble,
    draw,
    own_tasks,
    shuffle_within_tasks,
)
from prol.streams.base import Stream

Shape = Literal["linear", "sigmoid"]
Floats = NDArray[np.float64]

_STEEPNESS = 6.0  # the sigmoid is taken from -6 to 6, where it has come within 0.3 % of its ends
_TABLE = np.linspace(0, 1, 1025)


def gradual(
    labels: Labels,
    *,
    tasks: int = 10,
    chunk: int = 10,
    seed: int = 0,
    class_order: ClassOrder = "label",
    boundaries: bool = False,
    announce: bool | None = None,
    shape: Shape = "linear",
    width: float = 0.5,
) -> Stream:
    """Neighbouring tasks hand over gradually, along a line or a sigmoid.

    Classes are cut into tasks as by `disjoint`, and time into tasks as long as their classes have samples. Around the
    moment w at which a task would begin lies a zone from w - h to w + h, in which the probability that a sample belongs
    to the next task's classes rises from 0 to 1; 2h is `width` times the length of the shorter of the two tasks.

    Each sample draws its time from where its task is present: the presence of a task with n samples is cut into n equal
    parts, one for each sample, which takes a random place in it. The order of times is the order of the stream. So
    every sample comes once, and at any moment each task has brought what it should to within three samples.

    Parameters
    ----------
    labels, tasks, chunk, seed, class_order
        As for `disjoint`. A chunk's task is told by its time, not by its classes.
    boundaries
        Whether the learner is told that a task begins, in the middle of the hand-over.
    announce
        Whether it is then also told the classes of the task; None means wherever boundaries are told.
    shape
        How the probability rises: p = (x - w + h) / 2h, or p = 1 / (1 + exp(-6 (x - w) / h)) stretched to end at 0
        and 1.
    width
        Share of a task's length that a hand-over takes, from 0 (none, as `disjoint`) to 1 (from the middle of one task
        to the middle of the next).

    References
    ----------
    C. Zeno et al. (2018). Task Agnostic Continual Learning Using Online Variational Bayes. arXiv:1803.10123.
    A. Bifet et al. (2010). MOA: Massive Online Analysis. JMLR 11, 1601-1604.

    >>> stream = gradual([0] * 40 + [1] * 40, tasks=2, chunk=10, width=1)
    >>> [int((chunk.indices >= 40).sum()) for chunk in stream.chunks]
    [0, 0, 2, 3, 7, 8, 10, 10]
    """
    if not 0 <= width <= 1:
        raise ValueError(f"width must be from 0 to 1, a share of a task's length, got {width}")
    if shape not in ("linear", "sigmoid"):
        raise ValueError(f"unknown shape {shape!r}: use 'linear' or 'sigmoid'")
    drawn = draw(labels, tasks, chunk, seed, class_order)
    groups = np.array_split(drawn.classes, tasks)
    samples = shuffle_within_tasks(own_tasks(drawn.numbers, groups), tasks, drawn.of_samples)
    sizes = np.array([len(of_task) for of_task in samples])
    walls = np.cumsum(sizes)
    # By the shorter neighbour: then zones never overlap, and what one task loses before the wall it gains behind it.
    halves = np.concatenate([[0.0], width / 2 * np.minimum(sizes[:-1], sizes[1:]), [0.0]])
    place_in_zone = np.sqrt if shape == "linear" else _place_in_sigmoid
    times = [
        walls[task] - size + _times(size, halves[task], halves[task + 1], place_in_zone, drawn.of_places)
        for task, size in enumerate(sizes.tolist())
    ]
    ordered = np.concatenate(samples)[np.argsort(np.concatenate(times), kind="stable")]
    return assemble(np.split(ordered, walls[:-1]), groups, chunk, boundaries, announce)


def _times(
    size: int, before: float, behind: float, place_in_zone: Callable[[Floats], Floats], random: np.random.Generator
) -> Floats:
    """When the samples of a task come, counted from where it would begin, `[size]`.

    The task is present from -before to size + behind; its presence rises until `before` and falls from size - behind.
    """
    presence = np.arange(size) + random.random(size)
    times = presence.copy()
    rising, falling = presence < before, presence > size - behind
    times[rising] = before * (2 * place_in_zone(presence[rising] / before) - 1)
    times[falling] = size - behind * (2 * place_in_zone((size - presence[falling]) / behind) - 1)
    return times


def _place_in_sigmoid(share: Floats) -> Floats:
    """Where in a zone from 0 to 1 the next task has had this share of what it gets there; for a line, the root."""
    probability = 1 / (1 + np.exp(-_STEEPNESS * (2 * _TABLE - 1)))
    probability -= probability[0]
    passed = np.concatenate([[0.0], np.cumsum(probability[1:] + probability[:-1])])
    return np.interp(share, passed / passed[-1], _TABLE)
