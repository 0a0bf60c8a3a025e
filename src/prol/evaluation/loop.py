"""The one loop: a stream through a learner, in one pass, yielding events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import torch

from prol.data.base import Dataset, Loaded
from prol.data.prefetch import prefetched
from prol.data.streams.stream import Stream
from prol.evaluation.clock import Arrivals, Clock, Cursor
from prol.evaluation.events import (
    ChunkLearnt,
    ChunkMissed,
    Event,
    Finished,
    ImagesSkipped,
    RunStarted,
    StepTimed,
    TaskEnded,
    TaskStarted,
)
from prol.evaluation.exams import Examiner, Measures
from prol.evaluation.result import Result
from prol.learner import Learner

STEPS_UNTIL_WARM = 4
"""After so many steps a GPU has compiled and recorded whatever it will."""


def run_stream(
    learner: Learner,
    dataset: Dataset,
    stream: Stream,
    cursor: Cursor | None = None,
    *,
    measures: Measures | None = None,
    clock: Clock | None = None,
    workers: int = 0,
) -> Iterator[Event]:
    """Teaches the whole stream and evaluates after each task, and wherever else `measures` requires it.

    `cursor` is updated in place. A later call resumes from a copy of it and of the learner's state, taken at a
    `ChunkLearnt`, a `ChunkMissed` or a `TaskEnded`, with the same events and the same result. On a `clock` data do not
    wait, and chunks may be missed. `workers` threads read images ahead.
    """
    cursor = Cursor() if cursor is None else cursor
    examiner = Examiner(learner, dataset, stream, measures or Measures(), workers)
    sizes = [len(chunk.indices) for chunk in stream.chunks]
    arrivals = None if clock is None else Arrivals(clock, sizes)
    names, chunks, given = dataset.class_names, stream.chunks, stream.boundaries_told
    if cursor == Cursor():
        yield RunStarted(len(stream.task_classes), len(chunks), sum(sizes), sum(map(len, examiner.test_images)))
    with closing(prefetched(dataset.train, (chunk.indices for chunk in chunks[cursor.chunks :]), workers)) as reading:
        for task in range(cursor.tasks_evaluated, len(stream.task_classes)):
            if task == cursor.tasks_begun:
                classes = tuple(names[number] for number in stream.task_classes[task])
                if given:
                    learner.boundary(classes if stream.classes_announced else None)
                cursor.begin_task()
                yield TaskStarted(task, classes, given)
            yield from examiner.within_task(task, cursor)
            while cursor.chunks < len(chunks) and chunks[cursor.chunks].task == task:
                loaded = next(reading)
                if arrivals is not None and arrivals.missed(cursor.chunks, cursor):
                    yield _miss(cursor, task, sizes[cursor.chunks])
                else:
                    yield from _take(learner, dataset, loaded, task, cursor, examiner, arrivals)
                yield from examiner.within_task(task, cursor)
            yield from examiner.after_task(task, cursor)
            yield TaskEnded.of(cursor, classes_seen=len(learner.classes))
    yield Finished(Result.of(learner, dataset, stream, cursor, clock))


def _take(
    learner: Learner,
    dataset: Dataset,
    loaded: Loaded,
    task: int,
    cursor: Cursor,
    examiner: Examiner,
    arrivals: Arrivals | None,
) -> Iterator[Event]:
    """One chunk: images that cannot be read are reported, the rest is learnt."""
    if loaded.unreadable:
        cursor.skipped_train += len(loaded.unreadable)
        yield ImagesSkipped.of("train", task, loaded.unreadable)
    yield from examiner.before_learning(loaded, task, cursor)
    if loaded.images:
        labels = [dataset.class_names[label] for label in dataset.train.labels[loaded.indices]]
        if arrivals is not None and arrivals.cold:
            warm = learner.clone()
            for _ in range(STEPS_UNTIL_WARM if learner.backbone.device.type == "cuda" else 1):
                warm.learn(loaded.images, labels)
            arrivals.cold = False
        began = time.perf_counter()
        learner.learn(loaded.images, labels)
        if arrivals is not None:
            if learner.backbone.device.type == "cuda":
                torch.cuda.synchronize(learner.backbone.device)
            yield StepTimed(cursor.chunks + 1, *arrivals.learnt(cursor.chunks, cursor, time.perf_counter() - began))
    cursor.chunks += 1
    if loaded.images:
        yield ChunkLearnt(cursor.chunks, task, len(loaded.images), learner.report())


def _miss(cursor: Cursor, task: int, images: int) -> ChunkMissed:
    cursor.chunks += 1
    cursor.missed_chunks += 1
    cursor.missed_images += images
    return ChunkMissed(cursor.chunks, task, images)
