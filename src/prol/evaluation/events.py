"""Events that the loop yields. Tasks count from 0.

No event carries a time, so that logs can be compared, but for those of a run on a clock, where time decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from prol.data.base import Unreadable
from prol.evaluation.clock import Cursor
from prol.evaluation.metrics import accuracy_matrix, compute_metrics
from prol.evaluation.result import Result


@dataclass(frozen=True)
class RunStarted:
    """The stream is about to begin."""

    tasks: int
    chunks: int
    train_images: int
    test_images: int


@dataclass(frozen=True)
class TaskStarted:
    """A task begins; `told` is whether the boundary is given to the learner."""

    task: int
    classes: tuple[str, ...]
    told: bool


@dataclass(frozen=True)
class ImagesSkipped:
    """Images that could not be read, with the reasons."""

    half: Literal["train", "test"]
    task: int
    paths: tuple[str, ...]
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, half: Literal["train", "test"], task: int, images: Sequence[Unreadable]) -> Self:
        return cls(half, task, tuple(image.path for image in images), tuple(image.reason for image in images))


@dataclass(frozen=True)
class ChunkMissed:
    """A chunk was lost because the learner was busy; `chunk` counts all chunks so far."""

    chunk: int
    task: int
    images: int


@dataclass(frozen=True)
class ChunkRead:
    """A chunk was read and is about to be predicted: the time until now was spent on reading."""

    chunk: int


@dataclass(frozen=True)
class Predicted:
    """A chunk was predicted before it is learnt."""

    chunk: int
    correct: int
    total: int


@dataclass(frozen=True)
class StepTimed:
    """The time of a step on the clock, and how long after the chunk's arrival it was done."""

    chunk: int
    seconds: float
    lag: float


@dataclass(frozen=True)
class ChunkLearnt:
    """One step is done; `report` holds the learner's own numbers about it; reading them may wait for the device."""

    chunk: int
    task: int
    images: int
    report: Mapping[str, float]


@dataclass(frozen=True)
class Evaluated:
    """The test images of task `tested` were classified after task `task`, among all classes seen so far."""

    task: int
    tested: int
    correct: int
    total: int


@dataclass(frozen=True)
class PointEvaluated:
    """After `images` of the stream, the test images of all `classes` seen so far were classified."""

    images: int
    classes: int
    correct: int
    total: int


@dataclass(frozen=True)
class ShotEvaluated:
    """After `shot` chunks of a task, its own test images were classified."""

    task: int
    shot: int
    correct: int
    total: int


@dataclass(frozen=True)
class TaskEnded:
    """A task is learnt and all tasks so far are evaluated; accuracies in percent."""

    task: int
    accuracies: tuple[float, ...]
    average_accuracy: float
    classes_seen: int

    @classmethod
    def of(cls, cursor: Cursor, classes_seen: int) -> Self:
        matrix = accuracy_matrix(cursor.correct, cursor.total)
        average = compute_metrics(matrix, [row[-1] for row in cursor.total]).faa
        return cls(cursor.tasks_evaluated - 1, tuple(matrix[:, -1].tolist()), average, classes_seen)


@dataclass(frozen=True)
class Finished:
    """The stream has ended."""

    result: Result


Event = (
    RunStarted
    | TaskStarted
    | ImagesSkipped
    | ChunkMissed
    | ChunkRead
    | Predicted
    | StepTimed
    | ChunkLearnt
    | Evaluated
    | PointEvaluated
    | ShotEvaluated
    | TaskEnded
    | Finished
)
