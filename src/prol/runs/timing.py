"""How long things took: stored apart from results, which are compared bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from prol.evaluation import Event, events
from prol.files import open_regular
from prol.runs.folder import RunFolder


@dataclass
class TaskTime:
    """Images and seconds of one task; loading images counts, checkpoints and display do not.

    Testing is the evaluation after the task; `asked` are evaluations within it (points, shots, prequential). A run
    resumed on another machine lists several kinds of hardware.
    """

    train_images: int = 0
    train_seconds: float = 0.0
    test_images: int = 0
    test_seconds: float = 0.0
    asked_images: int = 0
    asked_seconds: float = 0.0
    hardware: list[str] = field(default_factory=list)


class Timing:
    """Listens to a run and adds up training and testing times by task; `hardware` is the current device."""

    def __init__(self, hardware: str, tasks: Sequence[Mapping[str, Any]] = ()) -> None:
        self.hardware = hardware
        self.tasks = [TaskTime(**task) for task in tasks]

    def __call__(self, event: Event, seconds: float) -> None:
        match event:
            case events.TaskStarted():
                self.tasks.append(TaskTime(train_seconds=seconds))
            case events.ChunkLearnt(images=images):
                self.tasks[-1].train_images += images
                self.tasks[-1].train_seconds += seconds
            case events.Evaluated(total=total):
                self.tasks[-1].test_images += total
                self.tasks[-1].test_seconds += seconds
            case events.PointEvaluated(total=total) | events.ShotEvaluated(total=total) | events.Predicted(total=total):
                self.tasks[-1].asked_images += total
                self.tasks[-1].asked_seconds += seconds
            case events.ImagesSkipped(half="train") | events.ChunkRead() | events.StepTimed():
                self.tasks[-1].train_seconds += seconds
            case events.ImagesSkipped() | events.TaskEnded():
                self.tasks[-1].test_seconds += seconds
            case events.RunStarted() | events.ChunkMissed() | events.Finished():  # these cost the learner nothing
                return
        if self.hardware not in self.tasks[-1].hardware:
            self.tasks[-1].hardware.append(self.hardware)

    def state(self) -> list[dict[str, Any]]:
        return [asdict(task) for task in self.tasks]

    def summary(self, features_reused: bool = False) -> dict[str, Any]:
        """The content of `timing.json`. The mean over tasks is the paper's throughput; pooled is images by seconds.

        If features of test images were cached, no test speed is reported: it would not be that of a prediction.
        """
        speeds = [_per_second(task.train_images, task.train_seconds) for task in self.tasks]
        test_speeds = [_per_second(task.test_images, task.test_seconds) for task in self.tasks]
        train_seconds = sum(task.train_seconds for task in self.tasks)
        train_images = sum(task.train_images for task in self.tasks)
        return {
            "hardware": list(dict.fromkeys(name for task in self.tasks for name in task.hardware)),
            "train_images_per_second": fmean(speeds) if speeds else 0.0,
            "train_images_per_second_pooled": _per_second(train_images, train_seconds),
            "test_features_reused": features_reused,
            "test_images_per_second": None if features_reused else fmean(test_speeds or [0.0]),
            "train_seconds": train_seconds,
            "test_seconds": sum(task.test_seconds for task in self.tasks),
            "tasks": [
                asdict(task)
                | {"train_images_per_second": speed}
                | {"test_images_per_second": None if features_reused else test_speed}
                for task, speed, test_speed in zip(self.tasks, speeds, test_speeds, strict=True)
            ],
        }


def _per_second(images: int, seconds: float) -> float:
    return images / seconds if seconds > 0 else 0.0


def read_step_seconds(text: str | None) -> float | tuple[float, ...] | None:
    """Seconds per step: a number, or the times recorded in the folder of an earlier run on a clock.

    >>> read_step_seconds("0.02")
    0.02
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        folder = RunFolder(text)
    folder.require_run()
    if not folder.steps.is_file():
        raise ValueError(
            f"{text} holds no times of steps (steps.json): give the folder of a finished run on a clock, or a number"
        )
    return tuple(float(seconds) for seconds in folder.read(folder.steps)["step_seconds"])


def logged_step_seconds(log: Path) -> list[float]:
    """The seconds of each step, from a run's log."""
    with open_regular(log) as lines:
        timed = (json.loads(line) for line in lines if b'"StepTimed"' in line)
        return [float(event["seconds"]) for event in timed if event["event"] == "StepTimed"]
