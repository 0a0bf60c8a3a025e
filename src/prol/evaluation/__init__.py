"""Running a stream through a learner, and measuring it."""

from prol.evaluation.clock import Arrivals, Clock, Cursor
from prol.evaluation.events import (
    ChunkLearnt,
    ChunkMissed,
    ChunkRead,
    Evaluated,
    Event,
    Finished,
    ImagesSkipped,
    PointEvaluated,
    Predicted,
    RunStarted,
    ShotEvaluated,
    StepTimed,
    TaskEnded,
    TaskStarted,
)
from prol.evaluation.exams import Measures
from prol.evaluation.loop import run_stream
from prol.evaluation.metrics import AnytimeMetrics, Metrics, accuracy_matrix, compute_metrics
from prol.evaluation.result import Given, OnClock, Result, Skipped, Told

__all__ = [
    "AnytimeMetrics",
    "Arrivals",
    "ChunkLearnt",
    "ChunkMissed",
    "ChunkRead",
    "Clock",
    "Cursor",
    "Evaluated",
    "Event",
    "Finished",
    "Given",
    "ImagesSkipped",
    "Measures",
    "Metrics",
    "OnClock",
    "PointEvaluated",
    "Predicted",
    "Result",
    "RunStarted",
    "ShotEvaluated",
    "Skipped",
    "StepTimed",
    "TaskEnded",
    "TaskStarted",
    "Told",
    "accuracy_matrix",
    "compute_metrics",
    "run_stream",
]


def __dir__() -> list[str]:
    return __all__
