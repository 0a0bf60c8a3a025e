"""The one loop: a stream through a learner, in one pass, telling what happens as events."""

from __future__ import annotations

from collections.abc import Iterator

from prol.datasets.base import Dataset
from prol.evaluation.cursor import Cursor
from prol.evaluation.events import ChunkLearnt, Event, Finished, ImagesSkipped, RunStarted, TaskEnded, TaskStarted
from prol.evaluation.result import Result
from prol.evaluation.testing import evaluate_seen_tasks, task_test_images
from prol.learner import Learner
from prol.streams.base import Stream


def run_stream(learner: Learner, dataset: Dataset, stream: Stream, cursor: Cursor | None = None) -> Iterator[Event]:
    """Teaches the whole stream and evaluates after each task.

    `cursor` is kept up to date. A copy of it and of the learner's state, taken at a `ChunkLearnt` or a `TaskEnded`,
    is a point from which a later call goes on, with the same events and the same result.
    """
    cursor = Cursor() if cursor is None else cursor
    names, labels, told = dataset.class_names, dataset.train.labels, stream.boundaries_told
    if cursor == Cursor():
        train_images = sum(len(chunk.indices) for chunk in stream.chunks)
        test_images = sum(len(task_test_images(dataset, stream, task)) for task in range(len(stream.task_classes)))
        yield RunStarted(len(stream.task_classes), len(stream.chunks), train_images, test_images)
    for task in range(cursor.tasks_evaluated, len(stream.task_classes)):
        if task == cursor.tasks_begun:
            classes = tuple(names[number] for number in stream.task_classes[task])
            if told:
                learner.boundary(classes if stream.classes_announced else None)
            cursor.tasks_begun += 1
            yield TaskStarted(task, classes, told)
        while cursor.chunks < len(stream.chunks) and stream.chunks[cursor.chunks].task == task:
            loaded = dataset.train.load(stream.chunks[cursor.chunks].indices)
            if loaded.unreadable:
                cursor.skipped_train += len(loaded.unreadable)
                yield ImagesSkipped.of("train", task, loaded.unreadable)
            if loaded.images:
                learner.learn(loaded.images, [names[labels[index]] for index in loaded.indices])
            cursor.chunks += 1
            if loaded.images:
                yield ChunkLearnt(cursor.chunks, task, len(loaded.images), learner.report())
        yield from evaluate_seen_tasks(learner, dataset, stream, task, cursor)
        yield TaskEnded.of(cursor, classes_seen=len(learner.classes))
    yield Finished(Result.of(learner, dataset, stream, cursor))
