"""What a run comes to, as `result.json` holds it: no times, so that two results can be compared bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

from prol.datasets.base import Dataset
from prol.evaluation.cursor import Cursor
from prol.evaluation.metrics import Metrics, accuracy_matrix, compute_metrics
from prol.learner import Footprint, Learner
from prol.streams.base import Stream


@dataclass(frozen=True)
class Told:
    """What the learner was told or allowed besides images and labels; `samples_stored` is None until the run ends."""

    task_boundaries: bool
    classes_of_next_task: bool
    number_of_classes: bool = False
    task_identity_at_test: bool = False
    passes_over_the_data: int = 1
    samples_stored: int | None = None

    @classmethod
    def by(cls, stream: Stream, samples_stored: int | None = None) -> Told:
        announced = stream.boundaries_told and stream.classes_announced
        return cls(stream.boundaries_told, announced, samples_stored=samples_stored)


@dataclass(frozen=True)
class Skipped:
    """Images that could not be read, each counted once."""

    train: int
    test: int


@dataclass(frozen=True)
class Result:
    """The outcome of one run; `accuracy_matrix[i][t]` is the accuracy in percent on task i after task t."""

    accuracy_matrix: list[list[float]]
    test_sizes: list[int]
    metrics: Metrics
    footprint: Footprint
    told: Told
    task_classes: list[list[str]]
    skipped: Skipped

    @classmethod
    def of(cls, learner: Learner, dataset: Dataset, stream: Stream, cursor: Cursor) -> Result:
        matrix = accuracy_matrix(cursor.correct, cursor.total)
        sizes = [row[-1] for row in cursor.total]
        footprint = learner.footprint()
        return cls(
            accuracy_matrix=matrix.tolist(),
            test_sizes=sizes,
            metrics=compute_metrics(matrix, sizes),
            footprint=footprint,
            told=Told.by(stream, footprint.samples_stored.count),
            task_classes=[[dataset.class_names[number] for number in task] for task in stream.task_classes],
            skipped=Skipped(cursor.skipped_train, len(cursor.skipped_test)),
        )
