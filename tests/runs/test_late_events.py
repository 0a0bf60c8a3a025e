"""Events whose numbers are still on their way from the device are written when they are known, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from prol.evaluation import ChunkLearnt, TaskStarted
from prol.runs.log import MOST_WAITING, EventLog


class Late(Mapping[str, float]):
    """Numbers that must not be read before they are ready, unless there is no other way."""

    def __init__(self, value: float, ready: bool = False) -> None:
        self.value, self.ready, self.read = value, ready, False

    def __getitem__(self, name: str) -> float:
        self.read = True
        return {"total": self.value}[name]

    def __iter__(self) -> Iterator[str]:
        return iter(["total"])

    def __len__(self) -> int:
        return 1


class Broken(Late):
    def __getitem__(self, name: str) -> float:
        raise RuntimeError("the device is gone")


def written(path: Path) -> list[float | str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["report"]["total"] if "report" in line else line["event"] for line in lines]


def test_late_numbers_are_waited_for_only_when_too_many_are_late(tmp_path: Path) -> None:
    path, late = tmp_path / "events.jsonl", [Late(float(i)) for i in range(MOST_WAITING + 1)]
    with EventLog(path) as log:
        for i, numbers in enumerate(late[:-1]):
            log(ChunkLearnt(i, 0, 10, numbers), 0.0)
            log(TaskStarted(i, (), told=True), 0.0)
        assert written(path) == []
        assert not any(numbers.read for numbers in late)
        log(ChunkLearnt(9, 0, 10, late[-1]), 0.0)
        assert written(path) == [0.0, "TaskStarted"]
        late[1].ready = True
        log(TaskStarted(9, (), told=True), 0.0)
        assert written(path) == [0.0, "TaskStarted", 1.0, "TaskStarted"]
        assert not late[-1].read
        assert log.flush() == path.stat().st_size
    assert written(path) == [0.0, "TaskStarted", 1.0, "TaskStarted", 2.0, "TaskStarted"]


def test_what_failed_is_told_and_not_that_numbers_never_came(tmp_path: Path) -> None:
    def fails() -> None:
        with EventLog(tmp_path / "events.jsonl") as log:
            log(ChunkLearnt(0, 0, 10, Broken(1.0)), 0.0)
            raise ValueError("the real reason")

    with pytest.raises(ValueError, match="the real reason"):
        fails()
    assert written(tmp_path / "events.jsonl") == []
