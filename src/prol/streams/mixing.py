"""Taking a share of some classes' samples out of their own task and spreading it over the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prol.streams.assembly import Ints


def check_percent(name: str, value: float) -> None:
    """Refuses what is no percentage."""
    if not 0 <= value <= 100:
        raise ValueError(f"{name} must be a percentage from 0 to 100, got {value}")


def portions(sizes: Sequence[int] | Ints, percent: float) -> Ints:
    """How many to take of each size, so that all together are `percent` of the sum.

    Running totals are rounded, halves up. So the sum is right to half a piece, and each portion is its exact share
    rounded down or up.

    >>> portions([25, 25, 25, 25], 10).tolist()
    [3, 2, 3, 2]
    """
    totals: Ints = np.floor(np.cumsum([0, *sizes]) * percent / 100 + 0.5).astype(np.int64)
    return totals[1:] - totals[:-1]


def spread_evenly(places: Ints, samples: Sequence[Ints], tasks: int, minor: float, random: np.random.Generator) -> Ints:
    """New places: `minor` percent of the classes' samples are dealt to the other tasks in turn, like cards.

    Each other task gets the same number of a class or one more. The deal goes on from class to class, so that the tasks
    also receive alike. One sample of each class stays, whatever `minor` says: no task becomes empty.

    Parameters
    ----------
    places
        The task of each sample, `[samples]`.
    samples
        The samples of each class to spread, each class within one task.
    tasks
        How many tasks; with one there is nowhere to go.
    minor
        Percentage of the classes' samples, see `portions`.
    random
        Draws which samples go, and the order in which tasks are dealt to.
    """
    places = places.copy()
    if tasks == 1:
        return places
    sizes = np.array([len(of_class) for of_class in samples], dtype=np.int64)
    circle = random.permutation(tasks)
    dealt = 0
    for of_class, count in zip(samples, np.minimum(portions(sizes, minor), sizes - 1).tolist(), strict=True):
        others = circle[circle != places[of_class[0]]]
        places[random.permutation(of_class)[:count]] = others[(dealt + np.arange(count)) % len(others)]
        dealt += count
    return places
