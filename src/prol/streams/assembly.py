"""What every protocol shares: checking what it was asked for, drawing by its seed, cutting samples into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from prol.streams.base import Chunk, Stream

ClassOrder = Literal["label", "shuffled"]
Ints = NDArray[np.int64]
Labels = Sequence[int] | Ints

NOWHERE = -1
"""The place of a sample that is left out of the stream."""


@dataclass(frozen=True)
class Draw:
    """Checked labels, the classes in their order, and generators that do not disturb each other."""

    numbers: Ints
    classes: Ints
    of_samples: np.random.Generator
    of_places: np.random.Generator


def require_class_order(name: str) -> None:
    if name not in get_args(ClassOrder):
        raise ValueError(f"unknown class_order {name!r}: use 'label' or 'shuffled'")


def draw(labels: Labels, tasks: int, chunk: int, seed: int, class_order: ClassOrder) -> Draw:
    """Checks the arguments that all protocols have, and orders the classes."""
    numbers = _class_numbers(labels)
    classes = np.unique(numbers)
    if not 1 <= tasks <= len(classes):
        raise ValueError(f"tasks must be from 1 to the number of classes, {len(classes)}, got {tasks}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    require_class_order(class_order)
    # A generator for each purpose, so that shuffling the classes does not change what the sample order draws.
    of_classes, of_samples, of_places = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)
    )
    if class_order == "shuffled":
        classes = of_classes.permutation(classes)
    return Draw(numbers, classes, of_samples, of_places)


def resolve_announce(boundaries: bool, announce: bool | None) -> bool:
    """Classes are announced wherever boundaries are told, unless it is asked otherwise."""
    if announce and not boundaries:
        raise ValueError(
            "announce=True needs boundaries=True: classes are announced when a task begins; set announce=False"
        )
    return boundaries if announce is None else announce


def own_tasks(numbers: Ints, groups: Sequence[Ints]) -> Ints:
    """The task of each sample's class; NOWHERE for classes that are in no group."""
    classes, place = np.unique(numbers, return_inverse=True)
    task_of_class = np.full(len(classes), NOWHERE, dtype=np.int64)
    for task, group in enumerate(groups):
        task_of_class[np.searchsorted(classes, group)] = task
    return task_of_class[place]


def samples_by_class(numbers: Ints, classes: Ints) -> list[Ints]:
    """The samples of each class, in the order of `classes`."""
    by_number = np.argsort(numbers, kind="stable")
    ordered = numbers[by_number]
    first, last = np.searchsorted(ordered, classes, "left"), np.searchsorted(ordered, classes, "right")
    return [by_number[i:j] for i, j in zip(first, last, strict=True)]


def shuffle_within_tasks(places: Ints, tasks: int, random: np.random.Generator) -> list[Ints]:
    """The samples of each task in an order drawn at random; `places[i]` is the task of sample i."""
    return [random.permutation(np.flatnonzero(places == task)) for task in range(tasks)]


def assemble(
    samples: Sequence[Ints], groups: Sequence[Ints], chunk: int, boundaries: bool, announce: bool | None
) -> Stream:
    """Cuts the samples of each task, already in order of time, into chunks; the last of a task may be smaller."""
    return Stream(
        chunks=tuple(
            Chunk(ordered[i : i + chunk], task)
            for task, ordered in enumerate(samples)
            for i in range(0, len(ordered), chunk)
        ),
        task_classes=tuple(tuple(group.tolist()) for group in groups),
        boundaries_told=boundaries,
        classes_announced=resolve_announce(boundaries, announce),
    )


def _class_numbers(labels: Labels) -> Ints:
    numbers = np.asarray(labels)
    if numbers.size == 0:
        raise ValueError("labels are empty: a stream needs at least one sample")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"labels must be one row of class numbers, got {numbers.dtype} of shape {numbers.shape}")
    return numbers.astype(np.int64)
