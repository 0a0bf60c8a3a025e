"""What a Ray worker does and reports, without Ray: its last message comes however its run ends."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from prol.integrations.ray_executor import RunEnded, RunRequest, reason_to_refuse, source_sha256, work
from prol.runs import Plan, RunFolder
from runs.small_runs import small_plan


def request_for(plan: Plan, place: Path, **changes: Any) -> RunRequest:
    (place / "marker").touch()
    return replace(RunRequest(plan, place / "run", place / "marker", source_sha256(), place, cpus=1.0), **changes)


def messages_of(request: RunRequest) -> list[str | RunEnded]:
    """All messages of a worker, received in another thread: one that never comes must not stop the tests."""
    received: list[str | RunEnded] = []
    listener = Thread(target=lambda: received.extend(work(request)), daemon=True)
    listener.start()
    listener.join(120)
    assert not listener.is_alive()
    return received


def test_a_mistake_in_a_plan_is_the_last_message(tmp_path: Path, small_vit: str) -> None:
    *_, last = messages_of(request_for(small_plan(small_vit, tasks=1000), tmp_path))
    assert isinstance(last, RunEnded)
    assert last.problem is not None
    assert "tasks" in last.problem


def test_with_debugging_the_last_message_follows_the_traceback(
    tmp_path: Path, small_vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(small_vit, tasks=1000)
    *_, plain = messages_of(request_for(plan, tmp_path))
    monkeypatch.setenv("PROL_DEBUG", "1")
    *lines, last = messages_of(request_for(plan, tmp_path))
    assert last == plain
    assert "Traceback (most recent call last):" in lines
    assert any(isinstance(line, str) and "executors.py" in line for line in lines)


def test_a_lock_that_cannot_be_taken_is_the_last_message(tmp_path: Path, small_vit: str) -> None:
    """After a worker was lost, the lock of its run is waited for first."""
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    *_, last = messages_of(request_for(small_plan(small_vit), tmp_path, again=True))
    assert isinstance(last, RunEnded)
    assert last.problem is not None
    assert last.problem.startswith(f"{tmp_path / 'run' / '.lock'} is no regular file")


def test_a_method_that_ends_the_interpreter_ends_its_run_alone(
    tmp_path: Path, small_vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another package may do anything."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prol.methods]\nstrange = stranger_that_exits:Strange\n")
    (tmp_path / "stranger_that_exits.py").write_text(
        "from prol.methods.closed_form.ncm import NCM\n\n\nclass Strange(NCM):\n"
        "    name = 'strange'\n\n    def learn_pixels(self, pixels, rows):\n        raise SystemExit('no licence')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    *_, last = messages_of(request_for(small_plan(small_vit, "strange"), tmp_path))
    assert last == RunEnded("SystemExit: no licence")


def test_a_worker_reports_a_run_line_by_line_and_then_its_end(tmp_path: Path, small_vit: str) -> None:
    messages = list(work(request_for(small_plan(small_vit, workers=1), tmp_path)))
    assert messages[-1] == RunEnded(None)
    assert f"running in process {os.getpid()} on" in str(messages[0])
    assert any("task 3/3" in str(message) for message in messages)
    assert RunFolder(tmp_path / "run").status() == "finished"
    diverging = small_plan(small_vit, "head_only", options={"lr": 1e308})
    *_, diverged = work(request_for(diverging, tmp_path, path=tmp_path / "diverging"))
    assert isinstance(diverged, RunEnded)
    assert "the loss is not finite" in str(diverged.problem)


def test_a_worker_that_shares_no_files_or_has_another_prol_says_so(tmp_path: Path) -> None:
    good = request_for(Plan("ncm", "digits"), tmp_path)
    assert reason_to_refuse(good) is None
    nowhere = list(work(replace(good, marker=tmp_path / "elsewhere/marker")))
    assert isinstance(nowhere[-1], RunEnded)
    assert "does not see" in str(nowhere[-1].problem)
    assert "on a file system that all machines of the cluster share" in str(nowhere[-1].problem)
    assert "has another prol" in str(reason_to_refuse(replace(good, source="other")))


def test_a_resumed_run_waits_for_the_lock_of_the_lost_worker(tmp_path: Path, small_vit: str) -> None:
    lost = RunFolder(tmp_path / "run")
    lost.path.mkdir()
    received: list[Any] = []
    with lost.locked():
        running = Thread(
            target=lambda: received.extend(work(request_for(small_plan(small_vit, workers=1), tmp_path, again=True)))
        )
        running.start()
        running.join(timeout=0.3)
        assert running.is_alive()
    running.join(timeout=60)
    assert received[-1] == RunEnded(None)
