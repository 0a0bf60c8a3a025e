"""A protocol without task boundaries: each group of classes is replaced by the next gradually."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prol.data.streams.stream import ClassOrder, Labels, Stream, StreamBuilder

Floats = NDArray[np.float64]

_STEEPNESS = 6.0  # the sigmoid is evaluated from -6 to 6, where it is within 0.3 % of its limits
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
    shape: Literal["linear", "sigmoid"] = "linear",
    width: float = 0.5,
) -> Stream:
    """Consecutive tasks overlap; the transition is linear or a sigmoid.

    Classes are split into tasks as by `disjoint`, and time into tasks as long as their classes have samples. Around the
    moment w at which a task would begin lies a transition from w - h to w + h, in which the probability that a sample
    belongs to the next task's classes rises from 0 to 1; 2h is `width` times the length of the shorter task.

    Each sample draws its time from the density of its task: the density of a task with n samples is divided into n
    equal parts, and each sample draws a time from one of them. The stream is sorted by time. So every sample comes
    once, and at any moment the number of samples of each task is within three of its expectation.

    Other parameters are those of `disjoint`. A chunk's task follows from its time, not from its classes, and a boundary
    lies in the middle of a transition.

    Args:
        shape: the probability: p = (x - w + h) / 2h, or p = 1 / (1 + exp(-6 (x - w) / h)) rescaled to end at 0 and 1.
        width: length of a transition relative to that of a task, from 0 (none, as `disjoint`) to 1 (from the middle of
            one task to the middle of the next).

    References:
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
    builder = StreamBuilder(labels, tasks, chunk, seed, class_order, boundaries, announce)
    groups = np.array_split(builder.classes, tasks)
    samples = builder.shuffled(builder.own_tasks(groups))
    sizes = np.array([len(of_task) for of_task in samples])
    ends = np.cumsum(sizes)
    # By the shorter neighbour: transitions never overlap, and a task gains after a boundary what it loses before it.
    halves = np.concatenate([[0.0], width / 2 * np.minimum(sizes[:-1], sizes[1:]), [0.0]])
    quantile = np.sqrt if shape == "linear" else _sigmoid_quantile
    times = [
        ends[task] - size + _times(size, halves[task], halves[task + 1], quantile, builder.random)
        for task, size in enumerate(sizes.tolist())
    ]
    ordered = np.concatenate(samples)[np.argsort(np.concatenate(times), kind="stable")]
    return builder.build(np.split(ordered, ends[:-1]), groups)


def _times(
    size: int, before: float, after: float, quantile: Callable[[Floats], Floats], random: np.random.Generator
) -> Floats:
    """The times of a task's samples, counted from its nominal start, `[size]`.

    The density of the task is positive from -before to size + after; it rises until `before` and falls from
    size - after.
    """
    mass = np.arange(size) + random.random(size)
    times = mass.copy()
    rising, falling = mass < before, mass > size - after
    times[rising] = before * (2 * quantile(mass[rising] / before) - 1)
    times[falling] = size - after * (2 * quantile((size - mass[falling]) / after) - 1)
    return times


def _sigmoid_quantile(share: Floats) -> Floats:
    """Where in a transition from 0 to 1 the next task has had this share of its samples; for a line, the root."""
    probability = 1 / (1 + np.exp(-_STEEPNESS * (2 * _TABLE - 1)))
    probability -= probability[0]
    passed = np.concatenate([[0.0], np.cumsum(probability[1:] + probability[:-1])])
    return np.interp(share, passed / passed[-1], _TABLE)
