from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prol.runs import Plan, RunFolder, start
from prol.runs.display import Silent
from prol.runs.executors import LocalProcesses, Serial, with_share_of_processors
from runs.small_runs import contents, small_plan


@pytest.mark.slow
def test_a_run_whose_process_is_killed_goes_on_in_another(tmp_path: Path, micro_vit: str) -> None:
    heard: list[str] = []

    def hear(path: Path, line: str) -> None:
        heard.append(f"{path.name}: {line}")
        if "task 1/3" in line and not any("ended with code" in line for line in heard):
            (process,) = multiprocessing.active_children()
            process.kill()

    plan = small_plan(micro_vit, chunk=1, workers=1)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    assert dict(LocalProcesses(jobs=1).execute({killed: plan}, hear)) == {killed: None}
    assert "killed: its process ended with code -9; resuming from its last checkpoint" in heard
    assert any("resuming after chunk" in line for line in heard)
    assert dict(Serial(Silent()).execute({whole: plan}, hear)) == {whole: None}
    assert contents(killed) == contents(whole)


@pytest.mark.slow
def test_a_run_whose_process_dies_too_often_is_given_up(tmp_path: Path, micro_vit: str) -> None:
    def hear(path: Path, line: str) -> None:
        del path
        if "task 1/3" in line:
            multiprocessing.active_children()[0].kill()

    runs = {tmp_path / "run": small_plan(micro_vit, "prol", chunk=1, workers=1)}
    assert dict(LocalProcesses(1, retries=0).execute(runs, hear)) == {
        tmp_path / "run": "its process ended with code -9"
    }
    assert RunFolder(tmp_path / "run").status() == "unfinished"


def test_a_run_has_its_share_of_the_processors_unless_it_says_or_has_begun(tmp_path: Path, micro_vit: str) -> None:
    plan, free = Plan("ncm", "digits"), tmp_path / "free"
    for cpus, threads, workers in ((4.0, 4, 2), (0.5, 1, 1)):
        shared = with_share_of_processors(plan, free, cpus)
        assert (shared.threads, shared.workers) == (threads, workers)
    given = replace(plan, threads=3, workers=0)
    assert with_share_of_processors(given, free, 8) == given
    begun = start(small_plan(micro_vit), tmp_path / "begun")
    assert with_share_of_processors(plan, begun.path, 4.0) == plan


@pytest.mark.slow
def test_runs_side_by_side_share_the_threads(tmp_path: Path, micro_vit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plan = small_plan(micro_vit, threads=None)
    threads: list[set[int]] = []
    heard: list[tuple[Path, str]] = []
    for jobs, names in ((2, "ab"), (8, "cde"), (8, "f")):
        runs = {tmp_path / name: plan for name in names}
        assert set(dict(LocalProcesses(jobs).execute(runs, lambda *line: heard.append(line))).values()) == {None}
        threads.append({RunFolder(path).read(RunFolder(path).config)["threads"] for path in runs})
    assert threads == [{3}, {2}, {1}]  # one alone has what its own process finds


@pytest.mark.parametrize(
    ("jobs", "retries", "says"), [(0, 1, "jobs must be at least 1"), (1, -1, "retries must be at least 0")]
)
def test_amounts_that_make_no_sense_are_refused(jobs: int, retries: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LocalProcesses(jobs, retries)
