"""Shared by all protocols: argument checks, random generators, and the division of ordered samples into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from prol.data.streams.stream import Chunk, Ints, Labels, Stream

ClassOrder = Literal["label", "shuffled"]

LEFT_OUT = -1
"""The task of a sample that is not part of the stream."""


@dataclass(frozen=True)
class Draw:
    """Checked labels, the classes in their order, and one random generator per purpose."""

    numbers: Ints
    classes: Ints
    of_samples: np.random.Generator
    of_places: np.random.Generator


def require_class_order(name: str) -> None:
    if name not in get_args(ClassOrder):
        raise ValueError(f"unknown class_order {name!r}: use 'label' or 'shuffled'")


def draw(labels: Labels, tasks: int, chunk: int, seed: int, class_order: ClassOrder) -> Draw:
    """Checks the arguments that all protocols share, and orders the classes."""
    numbers = np.asarray(labels)
    if numbers.size == 0:
        raise ValueError("labels are empty: a stream needs at least one sample")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(f"labels must be one row of class numbers, got {numbers.dtype} of shape {numbers.shape}")
    numbers = numbers.astype(np.int64)
    classes = np.unique(numbers)
    if not 1 <= tasks <= len(classes):
        raise ValueError(f"tasks must be from 1 to the number of classes, {len(classes)}, got {tasks}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    require_class_order(class_order)
    # Separate generators: shuffling the classes must not change the order of samples.
    of_classes, of_samples, of_places = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)
    )
    if class_order == "shuffled":
        classes = of_classes.permutation(classes)
    return Draw(numbers, classes, of_samples, of_places)


def own_tasks(numbers: Ints, groups: Sequence[Ints]) -> Ints:
    """The task of each sample's class; LEFT_OUT for classes that are in no group."""
    classes, row = np.unique(numbers, return_inverse=True)
    task_of_class = np.full(len(classes), LEFT_OUT, dtype=np.int64)
    for task, group in enumerate(groups):
        task_of_class[np.searchsorted(classes, group)] = task
    return task_of_class[row]


def samples_by_class(numbers: Ints, classes: Ints) -> list[Ints]:
    """The samples of each class, in the order of `classes`."""
    by_number = np.argsort(numbers, kind="stable")
    ordered = numbers[by_number]
    first, last = np.searchsorted(ordered, classes, "left"), np.searchsorted(ordered, classes, "right")
    return [by_number[i:j] for i, j in zip(first, last, strict=True)]


def shuffle_within_tasks(places: Ints, tasks: int, random: np.random.Generator) -> list[Ints]:
    """The samples of each task in random order; `places[i]` is the task of sample i."""
    return [random.permutation(np.flatnonzero(places == task)) for task in range(tasks)]


def assemble(
    samples: Sequence[Ints], groups: Sequence[Ints], chunk: int, boundaries: bool, announce: bool | None
) -> Stream:
    """Divides the ordered samples of each task into chunks; the last chunk of a task may be smaller."""
    if announce and not boundaries:
        raise ValueError(
            "announce=True needs boundaries=True: classes are announced when a task begins; set announce=False"
        )
    return Stream(
        chunks=tuple(
            Chunk(ordered[i : i + chunk], task)
            for task, ordered in enumerate(samples)
            for i in range(0, len(ordered), chunk)
        ),
        task_classes=tuple(tuple(group.tolist()) for group in groups),
        boundaries_told=boundaries,
        classes_announced=boundaries if announce is None else announce,
    )
