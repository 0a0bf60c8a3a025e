"""The listener that writes checkpoints, and going back to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from prol.artifacts import Checkpoints
from prol.evaluation import ChunkLearnt, ChunkMissed, Cursor, Event, TaskEnded
from prol.learner import Learner
from prol.runs.log import EventLog
from prol.runs.timing import Timing


class CheckpointWriter:
    """Every few chunks and at each end of a task, writes all that is needed to go on from there."""

    def __init__(
        self, checkpoints: Checkpoints, every: int, learner: Learner, cursor: Cursor, log: EventLog, timing: Timing
    ) -> None:
        self.checkpoints, self.every = checkpoints, every
        self.learner, self.cursor, self.log, self.timing = learner, cursor, log, timing

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        passed = isinstance(event, ChunkLearnt | ChunkMissed) and event.chunk % self.every == 0
        due = passed or isinstance(event, TaskEnded)
        if not due:
            return
        tensors, meta = self.learner.state()
        content = {
            "learner": meta,
            "cursor": asdict(self.cursor),
            "timing": self.timing.state(),
            "events_bytes": self.log.settle(),
        }
        # Chunks and tasks only ever grow, so their sum numbers the checkpoints.
        self.checkpoints.write(self.cursor.chunks + self.cursor.tasks_evaluated, tensors, content)


def go_back(checkpoints: Checkpoints, learner: Learner, warn: Callable[[str], None]) -> tuple[Cursor, Timing, int]:
    """Puts the learner where the newest good checkpoint was: how far that is, its times, the length of the log.

    Without any checkpoint that is the beginning.
    """
    newest: tuple[dict[str, Any], dict[str, Any]] | None = checkpoints.read_newest(warn)
    if newest is None:
        return Cursor(), Timing(), 0
    tensors, content = newest
    learner.load_state(tensors, content["learner"])
    return Cursor(**content["cursor"]), Timing(content["timing"]), int(content["events_bytes"])
