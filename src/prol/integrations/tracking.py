"""The base of all trackers: which metrics each event of a run yields. A tracker that fails never stops a run."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from prol.evaluation import Event, Result, events
from prol.evaluation.metrics import accuracy_matrix, compute_metrics
from prol.files import create_file, read_text
from prol.report.comparison import flat
from prol.runs import Listener, RunInView

EVERY = 10
"""Chunks between two reports of the learner's own metrics."""
MAX_PENDING = 2
"""Reports whose values may still be on their way from the device."""

Metrics = Mapping[str, float]


class MetricWriter(ABC):
    """Writes the metrics of one run to a tracking service.

    Args:
        last_steps: the last step of each metric that was written before the run was resumed.
    """

    def __init__(self, last_steps: Mapping[str, int] | None = None) -> None:
        self.last_steps = dict(last_steps or {})

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes each metric once per step, also when the steps since the last checkpoint are repeated."""
        new = self.unwritten(step, metrics)
        if new:
            self.last_steps |= dict.fromkeys(new, step)
            self.write(step, new)

    def unwritten(self, step: int, metrics: Metrics) -> dict[str, float]:
        return {name: value for name, value in metrics.items() if step > self.last_steps.get(name, -1)}

    @abstractmethod
    def write(self, step: int, metrics: Metrics) -> None: ...

    def write_summary(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of the whole run."""
        self.write(step, metrics)

    @abstractmethod
    def close(self, finished: bool) -> None: ...


class Tracker(ABC):
    """Opens a `MetricWriter` for each run that it follows. It holds settings only and can be pickled.

    Args:
        every: chunks between two reports of the learner's own metrics.
    """

    name: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, every: int = EVERY) -> None:
        if every < 1:
            raise ValueError(f"track-every must be at least 1 chunk, got {every}")
        if find_spec(self.package) is None:
            raise ValueError(f"tracking by {self.name} needs {self.package}: pip install 'prol[{self.name}]'")
        self.every = every

    @abstractmethod
    def open(self, run: RunInView) -> MetricWriter:
        """Creates a run on the service, or continues the one from before where the run is resumed."""

    @contextmanager
    def follow(self, run: RunInView) -> Iterator[Listener]:
        session, finished = _Session(self, run), False
        try:
            yield session
            finished = True
        finally:
            session.close(finished)


class _Session:
    """One run followed by one tracker. The first failure is reported as a warning and ends the tracking."""

    def __init__(self, tracker: Tracker, run: RunInView) -> None:
        self.name, self.every, self.run, self.step = tracker.name, tracker.every, run, run.cursor.chunks
        self.pending: deque[tuple[int, str, Metrics]] = deque()
        self.writer: MetricWriter | None = None
        with self._guarded():
            self.writer = tracker.open(run)

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        with self._guarded():
            if self.writer is None:
                return
            if isinstance(event, events.ChunkLearnt | events.ChunkMissed):
                self.step = event.chunk
            self.pending.extend((self.step, *named) for named in event_metrics(event, self.run, self.every))
            self._flush(self.writer, everything=isinstance(event, events.Finished))
            if isinstance(event, events.Finished):
                new = self.writer.unwritten(self.step, final_metrics(event.result))
                if new:
                    self.writer.write_summary(self.step, new)

    def close(self, finished: bool) -> None:
        with self._guarded():
            if self.writer is not None:
                self._flush(self.writer, everything=True)
                writer, self.writer = self.writer, None
                writer.close(finished)

    def _flush(self, writer: MetricWriter, everything: bool) -> None:
        """Writes pending metrics in order; on a GPU, values that are not computed yet are not waited for."""
        while self.pending:
            ready = getattr(self.pending[0][2], "ready", True)
            if not (everything or ready or len(self.pending) > MAX_PENDING):
                return
            step, prefix, metrics = self.pending.popleft()
            writer.log(step, {f"{prefix}{name}": value for name, value in metrics.items()})

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            self.run.warn(f"tracking by {self.name} has stopped, the run continues without it: {reason}")
            writer, self.writer = self.writer, None
            self.pending.clear()
            if writer is not None:
                with suppress(Exception):
                    writer.close(finished=False)


def event_metrics(event: Event, run: RunInView, every: int) -> list[tuple[str, Metrics]]:
    """The metrics of an event, each group with the prefix of its names; reading the learner's own may have to wait."""
    match event:
        case events.ChunkLearnt(chunk=chunk) if chunk % every == 0:
            return [("learning/", event.report), ("", _progress(run, event.task))]
        case events.PointEvaluated():
            return [("anytime/", {"accuracy": _percent(event), "classes": float(event.classes)})]
        case events.ShotEvaluated():
            return [("anytime/", {"shot_accuracy": _percent(event)})]
        case events.TaskEnded():
            return [("", _after_task(run, event))]
    return []


def _progress(run: RunInView, task: int) -> dict[str, float]:
    """Images per second in the current task and, where measured, the prequential accuracy."""
    metrics, (correct, total) = _speed(run), run.cursor.prequential[task]
    metrics |= {"anytime/prequential": 100.0 * correct / total} if total else {}
    return metrics | ({"clock/missed_chunks": float(run.cursor.missed_chunks)} if run.config["clock"] else {})


def _after_task(run: RunInView, event: events.TaskEnded) -> dict[str, float]:
    cursor, digits = run.cursor, len(str(run.config["protocol"]["tasks"]))
    matrix = accuracy_matrix(cursor.correct, cursor.total)
    forgetting = compute_metrics(matrix, [row[-1] for row in cursor.total]).forgetting
    metrics = {f"accuracy/task_{task + 1:0{digits}}": value for task, value in enumerate(event.accuracies)}
    metrics |= {"accuracy/average": event.average_accuracy, "accuracy/forgetting": forgetting}
    return metrics | {"classes/seen": float(event.classes_seen)} | _speed(run)


def _speed(run: RunInView) -> dict[str, float]:
    task = run.timing.tasks[-1]
    rate = task.train_images / task.train_seconds if task.train_seconds > 0 else 0.0
    return {"speed/train_images_per_second": rate}


def _percent(event: events.PointEvaluated | events.ShotEvaluated) -> float:
    return 100.0 * event.correct / event.total if event.total else 0.0


def final_metrics(result: Result) -> dict[str, float]:
    """All scalars of a result: its metrics, the anytime metrics that were measured, and the footprint."""
    measured = asdict(result.metrics) | asdict(result.anytime)
    metrics = {f"final/{name}": value for name, value in measured.items() if isinstance(value, int | float)}
    for what, amount in asdict(result.footprint).items():
        metrics |= {f"footprint/{what}_{unit}": float(value) for unit, value in amount.items()}
    return metrics


def flat_settings(config: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """A run's settings by dotted name."""
    plain = str | int | float | bool
    return {name: value if isinstance(value, plain) else str(value) for name, value in flat(config).items()}


def read_state(run: RunInView, tracker: str) -> dict[str, Any]:
    """What `write_state` stored for a run; empty where it is missing or damaged, and tracking starts afresh."""
    try:
        content = json.loads(read_text(_state_file(run, tracker)))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_state(run: RunInView, tracker: str, content: dict[str, Any]) -> None:
    """Stores what a tracker needs to continue after a resume, in `trackers/NAME.json` of the run's folder."""
    file = _state_file(run, tracker)
    file.parent.mkdir(exist_ok=True)
    # Atomic, but without fsync: this is written often, and the run would wait for the disk.
    unfinished = file.with_suffix(".new")
    with create_file(unfinished) as new:
        new.write(json.dumps(content, indent=2).encode() + b"\n")
    unfinished.replace(file)


def _state_file(run: RunInView, tracker: str) -> Path:
    return run.folder / "trackers" / f"{tracker}.json"
