"""A long tail: a few classes have many samples, most have few."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from prol.streams.assembly import (
    NOWHERE,
    ClassOrder,
    Labels,
    assemble,
    draw,
    own_tasks,
    samples_by_class,
    shuffle_within_tasks,
)
from prol.streams.base import Stream

Ranks = Literal["shuffled", "label"]


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
    ranks: Ranks = "shuffled",
) -> Stream:
    """Disjoint tasks with class sizes that fall exponentially; the rest is left out.

    Of the C classes, that of rank r = 0 .. C - 1 with n samples keeps n ratio^(-r / (C - 1)) of them, to the nearest
    sample, halves up, and at least one. The others are left out of the stream. What is kept comes as by `disjoint`.

    Parameters
    ----------
    labels, tasks, chunk, seed, class_order, boundaries, announce
        As for `disjoint`. The seed also draws which samples are kept.
    ratio
        Largest over smallest class, where all classes are equally large before.
    ranks
        Which classes stay large: "shuffled" draws their ranks by the seed, "label" takes them by number, whatever
        the order of classes is.

    References
    ----------
    Y. Cui et al. (2019). Class-Balanced Loss Based on Effective Number of Samples. CVPR.

    >>> stream = imbalanced([0] * 100 + [1] * 100 + [2] * 100, tasks=3, chunk=100, ranks="label")
    >>> [len(chunk.indices) for chunk in stream.chunks]
    [100, 10, 1]
    """
    if not 1 <= ratio < math.inf:
        raise ValueError(f"ratio must be a number of at least 1, largest class over smallest, got {ratio}")
    if ranks not in ("shuffled", "label"):
        raise ValueError(f"unknown ranks {ranks!r}: use 'shuffled' or 'label'")
    drawn = draw(labels, tasks, chunk, seed, class_order)
    groups = np.array_split(drawn.classes, tasks)
    ranked = np.sort(drawn.classes)
    if ranks == "shuffled":
        ranked = drawn.of_places.permutation(ranked)
    places = own_tasks(drawn.numbers, groups)
    for rank, of_class in enumerate(samples_by_class(drawn.numbers, ranked)):
        share = ratio ** (-rank / max(1, len(ranked) - 1))
        kept = max(1, math.floor(len(of_class) * share + 0.5))
        places[drawn.of_places.permutation(of_class)[kept:]] = NOWHERE
    samples = shuffle_within_tasks(places, tasks, drawn.of_samples)
    return assemble(samples, groups, chunk, boundaries, announce)
