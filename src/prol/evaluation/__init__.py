"""Running a stream through a learner, measuring it, and checking what a learner promises."""

from prol.evaluation.checks import CheckResult, check_learner
from prol.evaluation.cursor import Cursor
from prol.evaluation.events import (
    ChunkLearnt,
    Evaluated,
    Event,
    Finished,
    ImagesSkipped,
    RunStarted,
    TaskEnded,
    TaskStarted,
)
from prol.evaluation.loop import run_stream
from prol.evaluation.metrics import Metrics, accuracy_matrix, compute_metrics
from prol.evaluation.result import Result, Skipped, Told

__all__ = [
    "CheckResult",
    "ChunkLearnt",
    "Cursor",
    "Evaluated",
    "Event",
    "Finished",
    "ImagesSkipped",
    "Metrics",
    "Result",
    "RunStarted",
    "Skipped",
    "TaskEnded",
    "TaskStarted",
    "Told",
    "accuracy_matrix",
    "check_learner",
    "compute_metrics",
    "run_stream",
]
