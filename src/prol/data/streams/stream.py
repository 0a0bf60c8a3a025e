"""A stream: the order of samples, its chunks and tasks, the information given to the learner; and how one is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Labels = Sequence[int] | Ints

SHARED_ARGUMENTS = ("labels", "tasks", "chunk", "seed", "class_order", "boundaries", "announce")
"""The arguments of every protocol; all others are options of one protocol."""


@dataclass(frozen=True)
class Chunk:
    """Samples that arrive together, by their index in the training split."""

    indices: Ints
    task: int


@dataclass(frozen=True)
class Stream:
    """A complete stream. `task_classes[t]` are the class numbers of task t, in row order.

    Every class belongs to one task. In blurry streams some of its samples come earlier or later. Chunks are in order
    of time, so their `task` never decreases. `boundaries_told` and `classes_announced` say whether the learner is given
    the start of each task, and the classes of that task.
    """

    chunks: tuple[Chunk, ...]
    task_classes: tuple[tuple[int, ...], ...]
    boundaries_told: bool
    classes_announced: bool


@dataclass(frozen=True)
class TaskSummary:
    """One task in numbers; `foreign_share` is the fraction of its samples whose class belongs to another task."""

    samples: int
    chunks: int
    own_classes: int
    classes_present: int
    foreign_share: float


def summarise_tasks(stream: Stream, labels: Labels) -> tuple[TaskSummary, ...]:
    """The composition of each task.

    >>> from prol.data.streams import blurry
    >>> labels = [0] * 20 + [1] * 20
    >>> summarise_tasks(blurry(labels, tasks=2), labels)[0]
    TaskSummary(samples=20, chunks=2, own_classes=1, classes_present=2, foreign_share=0.1)
    """
    numbers = np.asarray(labels)
    summaries = []
    for task, own in enumerate(stream.task_classes):
        chunks = [numbers[chunk.indices] for chunk in stream.chunks if chunk.task == task]
        present = np.concatenate([numbers[:0], *chunks])
        foreign = float(np.mean(~np.isin(present, own))) if len(present) else 0.0
        summaries.append(TaskSummary(len(present), len(chunks), len(own), len(np.unique(present)), foreign))
    return tuple(summaries)


def class_presence(stream: Stream, labels: Labels, bins: int) -> Ints:
    """The number of samples of each class in each interval of time, `[classes, bins]`.

    Rows are sorted by task, and within a task in row order.

    Args:
        stream: any stream of these labels.
        labels: the class number of each training sample.
        bins: the number of intervals; their lengths differ by at most one sample.

    >>> from prol.data.streams import disjoint
    >>> labels = [0, 0, 0, 1, 1, 1]
    >>> class_presence(disjoint(labels, tasks=2), labels, bins=3).tolist()
    [[2, 1, 0], [0, 1, 2]]
    """
    order = np.concatenate([chunk.indices for chunk in stream.chunks])
    if not 1 <= bins <= len(order):
        raise ValueError(f"bins must be from 1 to the number of samples, {len(order)}, got {bins}")
    classes = np.array([number for group in stream.task_classes for number in group], dtype=np.int64)
    by_number = np.argsort(classes)
    rows = by_number[np.searchsorted(classes, np.asarray(labels)[order], sorter=by_number)]
    counts = np.zeros((len(classes), bins), dtype=np.int64)
    np.add.at(counts, (rows, np.arange(len(order)) * bins // len(order)), 1)
    return counts


ClassOrder = Literal["label", "shuffled"]

LEFT_OUT = -1
"""The task of a sample that is not part of the stream."""


def require_class_order(name: str) -> None:
    if name not in get_args(ClassOrder):
        raise ValueError(f"unknown class_order {name!r}: use 'label' or 'shuffled'")


class StreamBuilder:
    """Checks the arguments of a protocol, orders the classes, and builds the stream.

    `numbers` are the class numbers of all samples, and `classes` the classes in their order. `random` draws everything
    except the order of classes and of samples, which have their own generators: none of the three disturbs another.
    """

    def __init__(
        self,
        labels: Labels,
        tasks: int,
        chunk: int,
        seed: int,
        class_order: ClassOrder,
        boundaries: bool,
        announce: bool | None,
    ) -> None:
        numbers = np.asarray(labels)
        if numbers.size == 0:
            raise ValueError("labels are empty: a stream needs at least one sample")
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ValueError(f"labels must be one row of class numbers, got {numbers.dtype} of shape {numbers.shape}")
        self.numbers: Ints = numbers.astype(np.int64)
        self.classes = np.unique(self.numbers)
        if not 1 <= tasks <= len(self.classes):
            raise ValueError(f"tasks must be from 1 to the number of classes, {len(self.classes)}, got {tasks}")
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, got {seed}")
        require_class_order(class_order)
        if announce and not boundaries:
            raise ValueError(
                "announce=True needs boundaries=True: classes are announced when a task begins; set announce=False"
            )
        self._tasks, self._chunk = tasks, chunk
        self._boundaries, self._announce = boundaries, boundaries if announce is None else announce
        of_classes, self._of_samples, self.random = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
        if class_order == "shuffled":
            self.classes = of_classes.permutation(self.classes)

    def own_tasks(self, groups: Sequence[Ints]) -> Ints:
        """The task of each sample's class; LEFT_OUT for classes that are in no group."""
        classes, row = np.unique(self.numbers, return_inverse=True)
        task_of_class = np.full(len(classes), LEFT_OUT, dtype=np.int64)
        for task, group in enumerate(groups):
            task_of_class[np.searchsorted(classes, group)] = task
        return task_of_class[row]

    def samples_by_class(self, classes: Ints) -> list[Ints]:
        """The samples of each class, in the order of `classes`."""
        by_number = np.argsort(self.numbers, kind="stable")
        ordered = self.numbers[by_number]
        first, last = np.searchsorted(ordered, classes, "left"), np.searchsorted(ordered, classes, "right")
        return [by_number[i:j] for i, j in zip(first, last, strict=True)]

    def shuffled(self, task_of: Ints) -> list[Ints]:
        """The samples of each task in random order; `task_of[i]` is the task of sample i."""
        return [self._of_samples.permutation(np.flatnonzero(task_of == task)) for task in range(self._tasks)]

    def build(self, samples: Sequence[Ints], groups: Sequence[Ints]) -> Stream:
        """Divides the ordered samples of each task into chunks; the last chunk of a task may be smaller."""
        chunks = tuple(
            Chunk(ordered[i : i + self._chunk], task)
            for task, ordered in enumerate(samples)
            for i in range(0, len(ordered), self._chunk)
        )
        task_classes = tuple(tuple(group.tolist()) for group in groups)
        return Stream(chunks, task_classes, self._boundaries, self._announce)
