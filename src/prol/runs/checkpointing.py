"""The listener that writes checkpoints, and going back to one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from prol.artifacts import Checkpoints
from prol.backbones.processor import hardware_name
from prol.evaluation import ChunkLearnt, ChunkMissed, Cursor, Event, TaskEnded
from prol.learner import Learner
from prol.runs.log import EventLog
from prol.runs.setup import require_same
from prol.runs.timing import Timing


class CheckpointWriter:
    """Every few chunks and at each end of a task, writes all that is needed to go on from there.

    Between ends of tasks a checkpoint waits until those before it have taken no more than `share` of the time.
    `begun_with` is what a run must not change before it goes on.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: int,
        share: float,
        begun_with: Mapping[str, Any],
        learner: Learner,
        cursor: Cursor,
        log: EventLog,
        timing: Timing,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.checkpoints, self.every, self.begun_with, self.clock = checkpoints, every, dict(begun_with), clock
        self.learner, self.cursor, self.log, self.timing = learner, cursor, log, timing
        self.pause_by_cost = (1 - share) / share
        self.last_chunk, self.ended, self.took = cursor.chunks, clock(), 0.0

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        if isinstance(event, TaskEnded) or (isinstance(event, ChunkLearnt | ChunkMissed) and self._is_due()):
            began = self.clock()
            self._write()
            self.last_chunk, self.ended = self.cursor.chunks, self.clock()
            self.took = self.ended - began

    def _is_due(self) -> bool:
        rested = self.clock() - self.ended >= self.took * self.pause_by_cost
        return rested and self.cursor.chunks - self.last_chunk >= self.every

    def _write(self) -> None:
        tensors, meta = self.learner.state()
        content = {
            "begun_with": self.begun_with,
            "learner": meta,
            "cursor": asdict(self.cursor),
            "timing": self.timing.state(),
            "events_bytes": self.log.settle(),
        }
        # Chunks and tasks only ever grow, so their sum numbers the checkpoints.
        self.checkpoints.write(self.cursor.chunks + self.cursor.tasks_evaluated, tensors, content)


def what_must_stay(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that its checkpoints are true for; versions may change, with a warning."""
    return {name: value for name, value in config.items() if name != "versions"}


def go_back(
    checkpoints: Checkpoints, learner: Learner, begun_with: Mapping[str, Any], warn: Callable[[str], None]
) -> tuple[Cursor, Timing, int]:
    """Puts the learner where the newest good checkpoint was: how far that is, its times, the length of the log.

    Without any checkpoint that is the beginning. One written under other settings than `begun_with` is refused.
    """
    newest, hardware = checkpoints.read_newest(warn), hardware_name(learner.backbone.device)
    if newest is None:
        return Cursor(), Timing(hardware), 0
    tensors, content = newest
    then = content.get("begun_with", begun_with)  # older checkpoints do not say
    require_same({name: then.get(name) for name in begun_with}, begun_with, warn)
    try:
        learner.load_state(tensors, content["learner"])
        return Cursor(**content["cursor"]), Timing(hardware, content["timing"]), int(content["events_bytes"])
    except (KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the newest checkpoint in {checkpoints.folder} does not fit {learner.name} as it is now ({error!r}): "
            "go on with the version of prol that wrote it, or start a new run"
        ) from error
