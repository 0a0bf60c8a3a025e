from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import prol
from prol.backbones import ViT
from prol.evaluation import ChunkLearnt, Cursor, TaskEnded
from prol.runs.checkpoints import Checkpoints, CheckpointWriter, EventLog, restore_newest
from prol.runs.timing import Timing


class SlowDisk(Checkpoints):
    """Writes for two seconds of a clock that stands still otherwise."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now = 0.0
        self.written: list[int] = []

    def write(self, number: int, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
        super().write(number, tensors, content)
        self.now += 2
        self.written.append(number)


@pytest.fixture
def disk(tmp_path: Path) -> SlowDisk:
    return SlowDisk(tmp_path / "checkpoint")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog(tmp_path / "events.jsonl") as log:
        yield log


def chunks_with_checkpoints(disk: SlowDisk, log: EventLog, tiny: ViT, every: int, share: float) -> list[int]:
    """Sixty chunks of a second each, in two tasks of which the first ends after chunk 31."""
    cursor = Cursor()
    writer = CheckpointWriter(
        disk, every, share, {}, prol.create("ncm", tiny), cursor, log, Timing("a processor"), clock=lambda: disk.now
    )
    for chunk in range(1, 61):
        disk.now += 1
        cursor.chunks = chunk
        writer(ChunkLearnt(chunk, 0, 1, {}), 1.0)
        if chunk == 31:
            writer(TaskEnded(0, (50.0,), 50.0, classes_seen=2), 1.0)
    return disk.written


def test_checkpoints_come_every_few_chunks_and_at_ends_of_tasks(disk: SlowDisk, log: EventLog, tiny: ViT) -> None:
    assert chunks_with_checkpoints(disk, log, tiny, every=12, share=1.0) == [12, 24, 31, 43, 55]


def test_checkpoints_that_would_take_too_much_time_wait(disk: SlowDisk, log: EventLog, tiny: ViT) -> None:
    # Two seconds are a tenth of the time when eighteen lie between them.
    assert chunks_with_checkpoints(disk, log, tiny, every=5, share=0.1) == [5, 23, 31, 49]


def test_a_checkpoint_that_the_learner_cannot_take_is_told(tmp_path: Path, tiny: ViT) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    content = {"learner": {"classes": ["a"], "method": {}}, "cursor": {}, "timing": [], "events_bytes": 0}
    checkpoints.write(3, {"random": torch.Generator().get_state()}, content)
    with pytest.raises(ValueError, match=r"does not fit head_only as it is now .*start a new run"):
        restore_newest(checkpoints, prol.create("head_only", tiny), {}, pytest.fail)
