"""The result of a run, as `result.json` holds it.

There are no times in it, so that two results can be compared bit for bit; only on a clock does time decide.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prol.data.base import Dataset
from prol.data.streams.stream import Stream
from prol.evaluation.clock import Clock, Cursor
from prol.evaluation.metrics import AnytimeMetrics, Metrics, accuracy_matrix, anytime_metrics, compute_metrics
from prol.learner import Footprint, Learner


@dataclass(frozen=True)
class Given:
    """Information given to the learner besides images and labels; what it stored is None until the run ends."""

    task_boundaries: bool
    classes_of_next_task: bool
    task_identity_in_training: bool
    task_identity_at_test: bool
    number_of_classes: bool
    passes_over_the_data: int
    samples_stored: int | None
    sample_bytes_stored: int | None
    weights: str
    weights_sha256: str
    preprocessing: dict[str, Any]
    tasks_found_by_rule: bool | None
    """Whether it divided the stream into tasks by its own rule, since no boundaries were given."""

    @classmethod
    def by(cls, learner: Learner, stream: Stream, ended: bool = False) -> Given:
        stored = learner.footprint().samples_stored if ended else None
        return cls(
            task_boundaries=stream.boundaries_told,
            classes_of_next_task=stream.boundaries_told and stream.classes_announced,
            # A learner that is given every boundary can count tasks.
            task_identity_in_training=stream.boundaries_told,
            task_identity_at_test=False,
            number_of_classes=False,
            passes_over_the_data=1,
            samples_stored=None if stored is None else stored.count,
            sample_bytes_stored=None if stored is None else stored.bytes,
            weights=learner.backbone.name,
            weights_sha256=learner.backbone.sha256,
            preprocessing=asdict(learner.preprocessing),
            tasks_found_by_rule=learner.uses_tasks and not stream.boundaries_told if ended else None,
        )


Told = Given  # its name in version 0.1


@dataclass(frozen=True)
class Skipped:
    """Images that could not be read, each counted once."""

    train: int
    test: int


@dataclass(frozen=True)
class OnClock:
    """How a run kept up with data that did not wait; seconds are virtual. The lag ends when a chunk is learnt."""

    rate: float
    keep: int
    missed_chunks: int
    missed_images: int
    missed_share: float
    mean_lag: float
    most_lag: float
    seconds: float

    @classmethod
    def of(cls, clock: Clock, stream: Stream, cursor: Cursor) -> OnClock:
        images = sum(len(chunk.indices) for chunk in stream.chunks)
        return cls(
            rate=clock.rate,
            keep=clock.keep,
            missed_chunks=cursor.missed_chunks,
            missed_images=cursor.missed_images,
            missed_share=cursor.missed_images / images,
            mean_lag=cursor.lag_sum / max(cursor.steps, 1),
            most_lag=cursor.lag_most,
            seconds=max(cursor.free_at, images / clock.rate),
        )


@dataclass(frozen=True)
class Result:
    """The outcome of one run; `accuracy_matrix[i][t]` is the accuracy in percent on task i after task t.

    `points` holds one `[images, classes, correct, total]` for each point of the stream, `shots` and `prequential`
    `[correct, total]` by task, and `confidence_bins` `[images, right, summed confidence]` at the end.
    """

    accuracy_matrix: list[list[float]]
    test_sizes: list[int]
    metrics: Metrics
    anytime: AnytimeMetrics
    footprint: Footprint
    told: Given
    task_classes: list[list[str]]
    skipped: Skipped
    class_accuracy: dict[str, float]
    points: list[list[int]]
    prequential: list[list[int]]
    shots: list[list[list[int]]]
    confidence_bins: list[list[float]]
    clock: OnClock | None

    @classmethod
    def of(cls, learner: Learner, dataset: Dataset, stream: Stream, cursor: Cursor, clock: Clock | None) -> Result:
        matrix = accuracy_matrix(cursor.correct, cursor.total)
        sizes = [row[-1] for row in cursor.total]
        bins = np.array(cursor.confidence)
        return cls(
            accuracy_matrix=matrix.tolist(),
            test_sizes=sizes,
            metrics=compute_metrics(matrix, sizes),
            anytime=anytime_metrics([point[2:] for point in cursor.points], cursor.prequential, cursor.shots, bins),
            footprint=learner.footprint(),
            told=Given.by(learner, stream, ended=True),
            task_classes=[[dataset.class_names[number] for number in task] for task in stream.task_classes],
            skipped=Skipped(cursor.skipped_train, len(cursor.skipped_test)),
            class_accuracy={
                name: 100.0 * correct / total
                for name, (correct, total) in zip(dataset.class_names, cursor.classes, strict=True)
                if total
            },
            points=cursor.points,
            prequential=cursor.prequential,
            shots=cursor.shots,
            confidence_bins=cursor.confidence,
            clock=None if clock is None else OnClock.of(clock, stream, cursor),
        )
