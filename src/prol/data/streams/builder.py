"""What all protocols share: argument checks, random generators, and the division of ordered samples into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from prol.data.streams.stream import Chunk, Ints, Labels, Stream

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
