from __future__ import annotations

import json
from pathlib import Path

import pytest

from prol.evaluation import Evaluated, TaskStarted
from prol.runs.log import EventLog


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
