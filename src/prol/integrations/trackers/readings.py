"""The events of a run as numbers by name, which is all that trackers know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from prol.evaluation import ChunkLearnt, ChunkMissed, Event, PointEvaluated, Result, ShotEvaluated, TaskEnded
from prol.evaluation.metrics import accuracy_matrix, compute_metrics
from prol.runs import RunInView

SPEED = "speed/train_images_per_second"


class Readings:
    """Says what an event comes to. Its step is the number of chunks that are behind the run then.

    Of every `every`-th chunk the learner's own numbers are told, of all else everything.
    """

    def __init__(self, run: RunInView, every: int) -> None:
        self.run, self.every, self.step = run, every, run.cursor.chunks

    def read(self, event: Event) -> tuple[Mapping[str, float], ...]:
        """Numbers by name; those of the learner may be waited for when they are read."""
        match event:
            case ChunkLearnt(chunk=chunk):
                self.step = chunk
                return () if chunk % self.every else (_Learning(event.report), self._progress(event.task))
            case ChunkMissed(chunk=chunk):
                self.step = chunk
            case PointEvaluated():
                return ({"anytime/accuracy": _percent(event), "anytime/classes": float(event.classes)},)
            case ShotEvaluated():
                return ({"anytime/shot_accuracy": _percent(event)},)
            case TaskEnded():
                return (self._after_task(event),)
        return ()

    def _progress(self, task: int) -> dict[str, float]:
        """Of the task so far: images a second, and the share that was right before it was learnt, if that was asked."""
        numbers, cursor = {SPEED: self._speed()}, self.run.cursor
        correct, total = cursor.prequential[task]
        numbers |= {"anytime/prequential": 100.0 * correct / total} if total else {}
        return numbers | ({"clock/missed_chunks": float(cursor.missed_chunks)} if self.run.config["clock"] else {})

    def _after_task(self, event: TaskEnded) -> dict[str, float]:
        cursor, digits = self.run.cursor, len(str(self.run.config["protocol"]["tasks"]))
        matrix = accuracy_matrix(cursor.correct, cursor.total)
        metrics = compute_metrics(matrix, [row[-1] for row in cursor.total])
        numbers = {f"accuracy/task_{task + 1:0{digits}}": value for task, value in enumerate(event.accuracies)}
        numbers |= {"accuracy/average": event.average_accuracy, "accuracy/forgetting": metrics.forgetting}
        return numbers | {"classes/seen": float(event.classes_seen), SPEED: self._speed()}

    def _speed(self) -> float:
        task = self.run.timing.tasks[-1]
        return task.train_images / task.train_seconds if task.train_seconds > 0 else 0.0


class _Learning(Mapping[str, float]):
    """A learner's own numbers under names of ours, still not waited for."""

    def __init__(self, report: Mapping[str, float]) -> None:
        self.report = report

    @property
    def ready(self) -> bool:
        return bool(getattr(self.report, "ready", True))

    def __getitem__(self, name: str) -> float:
        return self.report[name.removeprefix("learning/")]

    def __iter__(self) -> Any:
        return (f"learning/{name}" for name in self.report)

    def __len__(self) -> int:
        return len(self.report)


def final_numbers(result: Result) -> dict[str, float]:
    """All single numbers of a result: metrics, those of any time that were asked for, and the footprint."""
    measured = asdict(result.metrics) | asdict(result.anytime)
    numbers = {f"final/{name}": value for name, value in measured.items() if isinstance(value, int | float)}
    for what, amount in asdict(result.footprint).items():
        numbers |= {f"footprint/{what}_{unit}": float(value) for unit, value in amount.items()}
    return numbers


def flat_settings(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A run's settings by dotted name, as plain texts, numbers and truths."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value if isinstance(value, str | int | float | bool) else str(value)
    return flat


def _percent(event: PointEvaluated | ShotEvaluated) -> float:
    return 100.0 * event.correct / event.total if event.total else 0.0
