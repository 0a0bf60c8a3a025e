"""The log of a run: one line per event, in order, late numbers included."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from prol.evaluation import ChunkLearnt, Evaluated, TaskStarted
from prol.runs.checkpoints import MOST_WAITING, EventLog


def test_events_become_lines_without_times(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log(TaskStarted(0, ("Käfer", "b"), told=False), 1.25)
        log(Evaluated(0, 0, 3, 4), 0.5)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines == [
        {"event": "TaskStarted", "task": 0, "classes": ["Käfer", "b"], "told": False},
        {"event": "Evaluated", "task": 0, "tested": 0, "correct": 3, "total": 4},
    ]


def test_a_log_opened_at_an_offset_drops_what_lies_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log(Evaluated(0, 0, 3, 4), 0.0)
        offset = log.flush()
        log(Evaluated(1, 0, 1, 4), 0.0)
        log(Evaluated(1, 1, 2, 4), 0.0)
    whole = path.read_bytes()
    with EventLog(path, offset):
        assert path.read_bytes() == whole[:offset]


def test_a_log_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="has 3 bytes, but had 10"):
        EventLog(tmp_path / "events.jsonl", 10)


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
