"""A worker's last word comes however its run ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from prol.integrations.ray_worker import Errand, Over, source_sha256, work
from prol.runs import Plan
from runs.small_runs import small_plan


def errand_for(plan: Plan, place: Path) -> Errand:
    (place / "marker").touch()
    return Errand(plan, place / "run", place / "marker", source_sha256(), place, cpus=1.0)


def said_for(errand: Errand) -> list[str | Over]:
    """All that a worker says, heard in another thread: a word that never comes must not stop the tests."""
    said: list[str | Over] = []
    listener = Thread(target=lambda: said.extend(work(errand)), daemon=True)
    listener.start()
    listener.join(120)
    assert not listener.is_alive()
    return said


def test_a_mistake_in_a_plan_is_the_last_word(tmp_path: Path, small_vit: str) -> None:
    *_, last = said_for(errand_for(small_plan(small_vit, tasks=1000), tmp_path))
    assert isinstance(last, Over)
    assert last.problem is not None
    assert "tasks" in last.problem


def test_while_mistakes_are_looked_for_the_last_word_comes_after_where_it_was_found(
    tmp_path: Path, small_vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(small_vit, tasks=1000)
    *_, plain = said_for(errand_for(plan, tmp_path))
    monkeypatch.setenv("PROL_DEBUG", "1")
    *lines, last = said_for(errand_for(plan, tmp_path))
    assert last == plain
    assert "Traceback (most recent call last):" in lines
    assert any(isinstance(line, str) and "executors.py" in line for line in lines)


def test_a_lock_that_cannot_be_asked_for_is_the_last_word(tmp_path: Path, small_vit: str) -> None:
    """As after a worker that was lost: its run's folder is waited for before anything else."""
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    *_, last = said_for(replace(errand_for(small_plan(small_vit), tmp_path), again=True))
    assert isinstance(last, Over)
    assert last.problem is not None
    assert last.problem.startswith(f"cannot write to {tmp_path / 'run'}")


def test_a_method_that_ends_the_interpreter_ends_its_run_alone(
    tmp_path: Path, small_vit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another package may do anything."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prol.methods]\nstrange = stranger_that_exits:Strange\n")
    (tmp_path / "stranger_that_exits.py").write_text(
        "from prol.methods.ncm import NCM\n\n\nclass Strange(NCM):\n"
        "    name = 'strange'\n\n    def _learn(self, pixels, rows):\n        raise SystemExit('no licence')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    *_, last = said_for(errand_for(small_plan(small_vit, "strange"), tmp_path))
    assert last == Over("SystemExit: no licence")
