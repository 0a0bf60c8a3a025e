"""Classifying test images: every task's on its own, among all classes seen so far, without a hint of the task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from prol.datasets.base import Dataset, Loaded, Split
from prol.evaluation.cursor import Cursor
from prol.evaluation.events import Evaluated, Event, ImagesSkipped
from prol.learner import Learner
from prol.streams.base import Stream


def task_test_images(dataset: Dataset, stream: Stream, task: int) -> NDArray[np.int64]:
    """The numbers of the test images of one task's classes."""
    return np.flatnonzero(np.isin(dataset.test.labels, stream.task_classes[task]))


def evaluate_seen_tasks(
    learner: Learner, dataset: Dataset, stream: Stream, task: int, cursor: Cursor
) -> Iterator[Event]:
    """Classifies the test images of the tasks up to and including `task`, and notes the counts in the cursor."""
    counts: list[tuple[int, int]] = []
    for tested in range(task + 1):
        correct = total = 0
        for batch in _readable_batches(dataset.test, task_test_images(dataset, stream, tested), learner.predict_batch):
            unheard = [image for image in batch.unreadable if image.index not in cursor.skipped_test]
            if unheard:
                cursor.skipped_test.extend(image.index for image in unheard)
                yield ImagesSkipped.of("test", tested, unheard)
            truth = [dataset.class_names[label] for label in dataset.test.labels[batch.indices]]
            correct += _count_correct(learner, batch, truth)
            total += len(truth)
        counts.append((correct, total))
        yield Evaluated(task, tested, correct, total)
    cursor.note_accuracy(task, counts)


def _count_correct(learner: Learner, batch: Loaded, truth: list[str]) -> int:
    scores = learner.predict(batch.images)
    if 0 in scores.shape:
        return 0
    answers = [learner.classes[row] for row in scores.argmax(dim=1).tolist()]
    return sum(answer == name for answer, name in zip(answers, truth, strict=True))


def _readable_batches(split: Split, indices: NDArray[np.int64], size: int) -> Iterator[Loaded]:
    """Images in batches of exactly `size` but for the last, also where some in between cannot be read.

    A learner whose answers depend on the batch by definition then sees the same batches whatever is missing.
    """
    waiting = Loaded([], np.zeros(0, dtype=np.int64))
    for start in range(0, len(indices), size):
        loaded = split.load(indices[start : start + size])
        images = waiting.images + loaded.images
        found = np.concatenate([waiting.indices, loaded.indices])
        bad = waiting.unreadable + loaded.unreadable
        if len(images) >= size:
            yield Loaded(images[:size], found[:size], bad)
            images, found, bad = images[size:], found[size:], []
        waiting = Loaded(images, found, bad)
    if waiting.images or waiting.unreadable:
        yield waiting
